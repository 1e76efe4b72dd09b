#include "gateway/admission/latency_slo.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/admission/observed_latency.h"

namespace spillway::gateway {

namespace {

class LatencySloPolicy final : public AdmissionPolicy {
 public:
  LatencySloPolicy(const LatencySlo& config, const Scope& scope)
      : config_(config),
        slo_classes_(scope.slo_classes.begin(), scope.slo_classes.end()),
        latency_(scope.num_instances, config.half_life_samples),
        streams_(scope.num_instances * scope.slo_classes.size()) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time,
                 sim::Draws&) override {
    latency_.look(request, view);
    const workload::SloClass& own = slo_classes_[request.slo_class()];
    if (request.priority() >= 0 || (!own.target_ttft_s && !own.target_tpot_s)) {
      return Verdict::admit();
    }
    for (std::size_t i = 0; i < view.size(); ++i) {
      const signals::InstanceSignal seen = view.instance(i);
      if (seen.running == 0 || seen.kv_utilization < config_.cold_kv_utilization) {
        return Verdict::admit();
      }
      const auto tokens = static_cast<double>(seen.prefill_tokens + request.input_tokens());
      const auto streams = static_cast<double>(latency_.streams(view.id(i)) + 1);
      if (keeps(own.target_ttft_s, latency_.ttft_s(tokens)) &&
          keeps(strictest_tpot(own, view.id(i)), latency_.tpot_s(streams))) {
        return Verdict::admit();
      }
    }
    return Verdict::reject();
  }

  void commit(const signals::RequestView& request, sim::Time) override {
    latency_.commit(request);
    instance_[request.id()] = kNone;
  }
  void dispatched(const signals::RequestView& request, sim::Time now) override {
    latency_.dispatched(request, now);
  }
  void first_token(const signals::RequestView& request, sim::InstanceId instance,
                   sim::Time now) override {
    latency_.first_token(request, instance, now);
    instance_[request.id()] = static_cast<std::int32_t>(instance.value);
    ++streams(instance, request.slo_class());
  }
  void finished(const signals::RequestView& request, workload::Outcome outcome,
                sim::Time now) override {
    latency_.finished(request, outcome == workload::Outcome::completed, now);
    const std::int32_t instance = instance_[request.id()];
    if (instance == kNone) return;
    --streams(sim::InstanceId{static_cast<std::size_t>(instance)}, request.slo_class());
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<LatencySlo>(to);
  }

 private:
  static constexpr std::int32_t kNone = -1;

  std::int32_t& streams(sim::InstanceId instance, std::size_t slo_class) {
    return streams_[instance.index() * slo_classes_.size() + slo_class];
  }
  bool keeps(const std::optional<double>& target_s,
             const std::optional<double>& predicted_s) const {
    return !target_s || !predicted_s || *predicted_s <= *target_s * config_.headroom_factor;
  }
  // One more stream slows all streams of the instance.
  std::optional<double> strictest_tpot(const workload::SloClass& own, sim::InstanceId instance) {
    std::optional<double> strictest = own.target_tpot_s;
    for (std::size_t k = 0; strictest && k < slo_classes_.size(); ++k) {
      const std::optional<double>& other = slo_classes_[k].target_tpot_s;
      if (other && streams(instance, k) > 0) strictest = std::min(*strictest, *other);
    }
    return strictest;
  }

  LatencySlo config_;
  std::vector<workload::SloClass> slo_classes_;
  ObservedLatency latency_;
  std::vector<std::int32_t> streams_;  // by instance and class
  PerRequest<std::int32_t> instance_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const LatencySlo& config, const Scope& scope) {
  return std::make_unique<LatencySloPolicy>(config, scope);
}

}  // namespace spillway::gateway
