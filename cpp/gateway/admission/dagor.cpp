#include "gateway/admission/dagor.h"

#include <algorithm>
#include <vector>

#include "gateway/admission/admission.h"
#include "sim/mix.h"

namespace spillway::gateway {

namespace {

class DagorPolicy final : public AdmissionPolicy {
 public:
  DagorPolicy(const Dagor& config, const Scope& scope)
      : config_(config), window_(sim::from_seconds(config.window_s)) {
    std::vector<std::int64_t> priorities;
    for (const workload::SloClass& slo_class : scope.slo_classes) {
      priorities.push_back(slo_class.priority);
    }
    std::sort(priorities.begin(), priorities.end(), std::greater<>{});
    priorities.erase(std::unique(priorities.begin(), priorities.end()), priorities.end());
    for (const workload::SloClass& slo_class : scope.slo_classes) {
      const auto rank = std::find(priorities.begin(), priorities.end(), slo_class.priority);
      rank_.push_back(rank - priorities.begin());
    }
    arrivals_.resize(priorities.size() * static_cast<std::size_t>(config.user_levels));
    level_ = lowest();
  }

  Verdict decide(const signals::RequestView& request, const signals::View&, sim::Time now,
                 sim::Draws&) override {
    const std::int64_t level = level_of(request, now);
    if (now - start_ >= window_ || arrived_ >= config_.window_requests) set_level(now);
    ++arrived_;
    ++arrivals_[static_cast<std::size_t>(level)];
    if (level > level_) return Verdict::reject();
    ++admitted_;
    return Verdict::admit();
  }

  void dispatched(const signals::RequestView& request, sim::Time now) override {
    if (config_.signal == DagorSignal::queue_delay) measure(now - request.arrival());
  }
  void first_token(const signals::RequestView& request, sim::InstanceId, sim::Time now) override {
    if (config_.signal == DagorSignal::ttft) measure(now - request.arrival());
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<Dagor>(to);
  }

 private:
  // 0 is the most important level. At the lowest level everything is admitted; at −1 nothing is.
  std::int64_t lowest() const { return static_cast<std::int64_t>(arrivals_.size()) - 1; }

  std::int64_t level_of(const signals::RequestView& request, sim::Time now) const {
    const std::uint64_t user = config_.user == DagorUser::tenant ? request.tenant() : request.row();
    const auto turn = static_cast<std::uint64_t>(sim::to_seconds(now) / config_.rotation_s);
    const std::uint64_t hash = sim::mix(sim::mix(user) + turn);
    return rank_[request.slo_class()] * config_.user_levels +
           static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(config_.user_levels));
  }

  void measure(sim::Time delay) {
    delay_s_ += sim::to_seconds(delay);
    ++delays_;
  }

  void set_level(sim::Time now) {
    const bool is_overloaded =
        delays_ > 0 && delay_s_ / static_cast<double>(delays_) > config_.threshold_s;
    const auto admitted = static_cast<double>(admitted_);
    // At least one more, or a level that admits nothing would persist.
    const double wanted = is_overloaded ? (1 - config_.decrease) * admitted
                                        : std::max(1.0, (1 + config_.increase) * admitted);
    std::int64_t total = 0;
    std::int64_t level = -1;
    for (; level < lowest(); ++level) {
      const std::int64_t more = total + arrivals_[static_cast<std::size_t>(level + 1)];
      const auto have = static_cast<double>(is_overloaded ? more : total);
      if (is_overloaded ? have > wanted : have >= wanted) break;
      total = more;
    }
    level_ = is_overloaded ? std::min(level_, level) : std::max(level_, level);
    std::fill(arrivals_.begin(), arrivals_.end(), 0);
    arrived_ = admitted_ = delays_ = 0;
    delay_s_ = 0;
    start_ = now;
  }

  Dagor config_;
  sim::Time window_;
  std::vector<std::int64_t> rank_;  // by class
  std::int64_t level_;              // the least important admitted level
  // Of the window:
  sim::Time start_{0};
  std::vector<std::int64_t> arrivals_;  // by level
  std::int64_t arrived_ = 0;
  std::int64_t admitted_ = 0;
  std::int64_t delays_ = 0;
  double delay_s_ = 0;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const Dagor& config, const Scope& scope) {
  return std::make_unique<DagorPolicy>(config, scope);
}

}  // namespace spillway::gateway
