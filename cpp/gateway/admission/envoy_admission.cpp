#include "gateway/admission/envoy_admission.h"

#include <algorithm>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/admission/per_request.h"
#include "sim/math.h"
#include "sim/ring.h"

namespace spillway::gateway {

namespace {

class EnvoyAdmissionPolicy final : public AdmissionPolicy {
 public:
  EnvoyAdmissionPolicy(const EnvoyAdmission& config, const Scope& scope)
      : config_(config), window_(sim::from_seconds(config.window_s)) {
    for (const workload::SloClass& slo_class : scope.slo_classes) {
      target_.push_back(slo_class.target_ttft_s ? sim::from_seconds(*slo_class.target_ttft_s)
                                                : sim::kForever);
    }
  }

  Verdict decide(const signals::RequestView&, const signals::View&, sim::Time now,
                 sim::Draws& draws) override {
    while (!ends_.empty() && ends_.front().at <= now - window_) {
      successes_ -= ends_.front().is_success ? 1 : 0;
      ends_.pop_front();
    }
    const auto n = static_cast<double>(ends_.size());
    if (n / config_.window_s < config_.rps_threshold) return Verdict::admit();
    const double s = static_cast<double>(successes_) / config_.success_threshold;
    const double missing = std::max(0.0, (n - s) / (n + 1));
    const double probability =
        std::min(sim::pow(missing, 1 / config_.aggression), config_.max_rejection_probability);
    return draws.uniform() < probability ? Verdict::reject() : Verdict::admit();
  }

  void commit(const signals::RequestView& request, sim::Time) override {
    is_known_[request.id()] = false;
  }
  void first_token(const signals::RequestView& request, sim::InstanceId, sim::Time now) override {
    if (config_.success != Success::first_token_in_time) return;
    note(request, now - request.arrival() <= target_[request.slo_class()], now);
  }
  void finished(const signals::RequestView& request, workload::Outcome outcome,
                sim::Time now) override {
    if (is_known_[request.id()]) return;
    note(request, outcome == workload::Outcome::completed, now);
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<EnvoyAdmission>(to);
  }

 private:
  struct End {
    sim::Time at;
    bool is_success = false;
  };

  void note(const signals::RequestView& request, bool is_success, sim::Time now) {
    is_known_[request.id()] = true;
    ends_.push_back({now, is_success});
    successes_ += is_success ? 1 : 0;
  }

  EnvoyAdmission config_;
  sim::Time window_;
  std::vector<sim::Time> target_;  // by class
  sim::Ring<End> ends_;
  std::int64_t successes_ = 0;
  PerRequest<char> is_known_;  // whether it already counts
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const EnvoyAdmission& config, const Scope& scope) {
  return std::make_unique<EnvoyAdmissionPolicy>(config, scope);
}

}  // namespace spillway::gateway
