#include "gateway/admission/compiled_admission.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gateway/admission/admission.h"
#include "signals/policy_records.h"

namespace spillway::gateway {

namespace {

class CompiledAdmissionPolicy final : public AdmissionPolicy {
 public:
  explicit CompiledAdmissionPolicy(const CompiledAdmission& config)
      : config_(config), functions_(config.called("gateway.admission")), state_(config.state) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time now,
                 sim::Draws& draws) override {
    if (config_.reads_instances) signals::record(view, instances_);
    signals::record(request, attributes_, seen_);
    if (config_.is_random) seen_.uniform = draws.uniform();
    const std::int32_t answer =
        functions_.decide(&seen_, instances_.data(), static_cast<std::int64_t>(instances_.size()),
                          sim::to_seconds(now), state_.data());
    if (answer == 1) return Verdict::admit();
    if (answer > 1 || answer < -2) refuse(answer, request, now);
    return Verdict::reject(static_cast<std::uint8_t>(-answer));
  }
  void commit(const signals::RequestView& request, sim::Time now) override {
    notify(functions_.commit, request, now);
  }
  void dispatched(const signals::RequestView& request, sim::Time now) override {
    notify(functions_.dispatched, request, now);
  }
  void first_token(const signals::RequestView& request, sim::InstanceId, sim::Time now) override {
    notify(functions_.first_token, request, now);
  }
  void finished(const signals::RequestView& request, workload::Outcome, sim::Time now) override {
    notify(functions_.finished, request, now);
  }

 private:
  void notify(signals::NotifyFunction* function, const signals::RequestView& request,
              sim::Time now) {
    if (function == nullptr) return;
    signals::record(request, attributes_, seen_);
    seen_.uniform = std::numeric_limits<double>::quiet_NaN();
    function(&seen_, sim::to_seconds(now), state_.data());
  }
  [[noreturn]] void refuse(std::int32_t answer, const signals::RequestView& request,
                           sim::Time now) const {
    throw sim::UsageError("the compiled policy '" + config_.name + "' returned " +
                          std::to_string(answer) + " for request " + std::to_string(request.row()) +
                          " at " + sim::to_text(sim::to_seconds(now)) +
                          " s: must be 1 (admit), 0, -1 or -2");
  }

  CompiledAdmission config_;
  const AdmissionFunctions& functions_;
  std::vector<double> state_;
  std::vector<signals::InstanceRecord> instances_;
  signals::RequestRecord seen_;                       // of the call
  std::vector<signals::AttributeRecord> attributes_;  // of the request of the call
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const CompiledAdmission& config) {
  return std::make_unique<CompiledAdmissionPolicy>(config);
}

}  // namespace spillway::gateway
