#include "gateway/admission/bouncer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/admission/per_request.h"
#include "numerics/percentile.h"
#include "sim/ring.h"

namespace spillway::gateway {

namespace {

class BouncerPolicy final : public AdmissionPolicy {
 public:
  BouncerPolicy(const Bouncer& config, const Scope& scope)
      : config_(config), classes_(scope.slo_classes.size()) {
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      classes_[k].target_ttft_s = scope.slo_classes[k].target_ttft_s;
      classes_[k].target_e2e_s = scope.slo_classes[k].target_e2e_s;
    }
  }

  Verdict decide(const signals::RequestView& request, const signals::View&, sim::Time,
                 sim::Draws&) override {
    Class& own = classes_[request.slo_class()];
    const bool goes = keeps_targets(own) || is_underserved(own);
    own.latest.push_back(goes);
    own.latest_admitted += goes ? 1 : 0;
    if (own.latest.size() > static_cast<std::size_t>(config_.share_requests)) {
      own.latest_admitted -= own.latest.front() ? 1 : 0;
      own.latest.pop_front();
    }
    return goes ? Verdict::admit() : Verdict::reject();
  }

  void commit(const signals::RequestView& request, sim::Time) override {
    ++classes_[request.slo_class()].queued;
    dispatched_at_[request.id()] = sim::kUnset;
  }
  void dispatched(const signals::RequestView& request, sim::Time now) override {
    --classes_[request.slo_class()].queued;
    ++in_flight_;
    dispatched_at_[request.id()] = now;
  }
  void first_token(const signals::RequestView& request, sim::InstanceId, sim::Time now) override {
    remember(classes_[request.slo_class()].to_first_token_s, request, now);
  }
  void finished(const signals::RequestView& request, workload::Outcome outcome,
                sim::Time now) override {
    Class& own = classes_[request.slo_class()];
    if (!sim::is_set(dispatched_at_[request.id()])) {
      --own.queued;
      return;
    }
    --in_flight_;
    if (outcome == workload::Outcome::completed) remember(own.to_end_s, request, now);
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<Bouncer>(to);
  }

 private:
  struct Class {
    std::optional<double> target_ttft_s;
    std::optional<double> target_e2e_s;
    std::int64_t queued = 0;
    // Times from dispatch:
    sim::Ring<double> to_first_token_s;
    sim::Ring<double> to_end_s;
    sim::Ring<char> latest;  // whether they were admitted
    std::int64_t latest_admitted = 0;
  };

  void remember(sim::Ring<double>& times, const signals::RequestView& request, sim::Time now) {
    times.push_back(sim::to_seconds(now - dispatched_at_[request.id()]));
    if (times.size() > static_cast<std::size_t>(config_.samples)) times.pop_front();
  }

  double wait_s() const {
    double work_s = 0;
    for (const Class& slo_class : classes_) {
      if (slo_class.queued == 0 || slo_class.to_end_s.empty()) continue;
      double sum_s = 0;
      for (std::size_t i = 0; i < slo_class.to_end_s.size(); ++i) sum_s += slo_class.to_end_s[i];
      work_s += static_cast<double>(slo_class.queued) * sum_s /
                static_cast<double>(slo_class.to_end_s.size());
    }
    return work_s / static_cast<double>(std::max<std::int64_t>(in_flight_, 1));
  }

  bool is_within(const std::optional<double>& target_s, const sim::Ring<double>& times) {
    if (!target_s || times.size() < static_cast<std::size_t>(config_.min_samples)) return true;
    scratch_.clear();
    for (std::size_t i = 0; i < times.size(); ++i) scratch_.push_back(times[i]);
    return wait_s() + numerics::quantile(scratch_, config_.percentile / 100) <= *target_s;
  }
  bool keeps_targets(const Class& own) {
    return is_within(own.target_ttft_s, own.to_first_token_s) &&
           is_within(own.target_e2e_s, own.to_end_s);
  }
  // Whether the class would fall short of its share without this request.
  bool is_underserved(const Class& own) const {
    return static_cast<double>(own.latest_admitted) <
           config_.min_share * static_cast<double>(own.latest.size() + 1);
  }

  Bouncer config_;
  std::vector<Class> classes_;
  std::int64_t in_flight_ = 0;
  PerRequest<sim::Time> dispatched_at_;
  std::vector<double> scratch_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const Bouncer& config, const Scope& scope) {
  return std::make_unique<BouncerPolicy>(config, scope);
}

}  // namespace spillway::gateway
