#include "gateway/admission/predictive_ttft.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/admission/admission.h"
#include "numerics/recursive_least_squares.h"
#include "signals/outstanding.h"
#include "sim/flat_map.h"
#include "sim/linked_list.h"
#include "sim/mix.h"
#include "sim/value.h"

namespace spillway::gateway {

using sim::Time;

namespace {

/// The features of the regression: 1, uncached tokens, uncached tokens ahead, decodes, in units
/// that keep them of similar size.
using Features = std::array<double, 4>;
constexpr double kTokens = 1e-3;
constexpr double kRequests = 1e-2;

/// Rejections in a row after which a policy that learns admits a probe.
constexpr std::int64_t kRejectionsPerProbe = 20;

Time span(double seconds) { return sim::from_seconds(std::min(seconds, sim::kLongestSpan_s)); }

/// The known prefix groups, and which of their requests bypass the estimate.
class PrefixGroups {
 public:
  enum class Pass : std::uint8_t { none, bonus, floor };

  explicit PrefixGroups(const ColdStart& config)
      : config_(config), memory_(sim::from_seconds(config.group_memory_s)) {}

  bool are_used() const { return config_.bonus_requests > 0 || config_.floor_per_s; }

  /// Whether a request of the group is admitted regardless of the prediction.
  Pass pass(std::uint64_t group, Time now) {
    if (static_cast<double>(passed_) > config_.largest_share * static_cast<double>(admitted_)) {
      return Pass::none;
    }
    forget(now);
    const Groups::Handle at = by_content_.find(sim::mix(group));
    const std::int64_t before = at == Groups::kNone ? 0 : groups_[at].admitted;
    if (before < config_.bonus_requests) return Pass::bonus;
    if (!config_.floor_per_s) return Pass::none;
    return at == Groups::kNone || filled(groups_[at], now) >= 1 ? Pass::floor : Pass::none;
  }

  void admitted(std::optional<std::uint64_t> group, Pass pass, Time now) {
    ++admitted_;
    if (pass != Pass::none) ++passed_;
    if (!group || !are_used()) return;
    forget(now);
    const std::uint64_t key = sim::mix(*group);
    Groups::Handle at = by_content_.find(key);
    if (at == Groups::kNone) {
      at = groups_.push_back({.key = key, .tokens = config_.floor_burst, .filled_at = now});
      by_content_.set(key, at);
    } else {
      groups_.unlink(at);
      groups_.link_back(at);
    }
    Group& entry = groups_[at];
    ++entry.admitted;
    entry.last = now;
    if (pass != Pass::floor) return;
    entry.tokens = filled(entry, now) - 1;
    entry.filled_at = now;
  }

 private:
  struct Group {
    std::uint64_t key = 0;
    std::int64_t admitted = 0;
    Time last{0};
    double tokens = 0;  ///< in the floor's bucket, at `filled_at`
    Time filled_at{0};
  };
  using Groups = sim::LinkedList<Group>;

  double filled(const Group& group, Time now) const {
    const double added = config_.floor_per_s.value_or(0) * sim::to_seconds(now - group.filled_at);
    return std::min(config_.floor_burst, group.tokens + added);
  }
  void forget(Time now) {
    while (!groups_.empty() && now - groups_[groups_.front()].last >= memory_) {
      by_content_.erase(groups_[groups_.front()].key);
      groups_.erase(groups_.front());
    }
  }

  ColdStart config_;
  Time memory_;
  Groups groups_;  // in order of their last admission
  sim::FlatMap by_content_;
  std::int64_t admitted_ = 0;
  std::int64_t passed_ = 0;
};

class PredictiveTtftPolicy final : public AdmissionPolicy {
 public:
  PredictiveTtftPolicy(const PredictiveTtft& config, const Scope& scope)
      : config_(config),
        costs_{config.beta0_us.value_or(scope.costs.empty_us),
               config.beta_prefill_us.value_or(scope.costs.prompt_token_us),
               config.beta_decode_us.value_or(scope.costs.decode_us)},
        avg_step_s_(config.avg_step_s.value_or(costs_.empty_us / 1e6)),
        groups_(config.cold_start) {
    set_classes(scope);
  }

  void change(const Admission& to, const Scope& scope, Time) override {
    config_ = std::get<PredictiveTtft>(to);
    set_classes(scope);
  }

  Verdict decide(const signals::RequestView& request, const signals::View& view, Time now,
                 sim::Draws& draws) override {
    pending_ = {.is_protected = config_.protected_priority &&
                                request.priority() >= *config_.protected_priority};
    if (pending_.is_protected && !config_.calibration.forgetting) return Verdict::admit();
    predict(request, view, now);
    if (pending_.is_protected || keeps_budget(request, view, now)) return Verdict::admit();
    if (const auto group = request.prefix_group(); group && groups_.are_used()) {
      pending_.pass = groups_.pass(*group, now);
      if (pending_.pass != PrefixGroups::Pass::none) return Verdict::admit();
    }
    if (config_.exploration > 0 && draws.uniform() < config_.exploration) return Verdict::admit();
    if (learns() && num_awaited_ == 0 && rejected_in_a_row_ >= kRejectionsPerProbe) {
      return Verdict::admit();
    }
    ++rejected_in_a_row_;
    return Verdict::reject();
  }

  std::string detail() const override {
    const auto seconds = [](double s) { return sim::to_text(std::round(s * 1e6) / 1e6) + " s"; };
    std::string text = "predicted " + seconds(pending_.estimate_s + margin_s_);
    if (pending_.priced) text += " on instance " + std::to_string(pending_.priced->index());
    return text + ", budget " + seconds(pending_.limit_s);
  }
  void commit(const signals::RequestView& request, Time now) override {
    groups_.admitted(request.prefix_group(), pending_.pass, now);
    rejected_in_a_row_ = 0;
    if (!learns()) return;
    ++num_awaited_;
    const std::size_t row = request.id().index();
    if (awaited_.size() <= row) awaited_.resize(row + 1);
    awaited_[row] = {.is_open = true,
                     .is_protected = pending_.is_protected,
                     .estimate_s = pending_.estimate_s,
                     .priced = pending_.priced,
                     .features = pending_.features,
                     .decided = now,
                     .dispatched = now};
  }

  void dispatched(const signals::RequestView& request, Time now) override {
    if (request.id().index() < awaited_.size()) awaited_[request.id().index()].dispatched = now;
  }

  void first_token(const signals::RequestView& request, sim::InstanceId instance,
                   Time now) override {
    Awaited* awaited = close(request);
    if (!awaited) return;
    move_margin(*awaited, sim::to_seconds(now - awaited->decided));
    if (!regression_ || instance != awaited->priced) return;
    regression_->update(awaited->features, sim::to_seconds(now - awaited->dispatched));
  }

  // Without a first token, the time to it is only known to exceed the request's lifetime.
  void finished(const signals::RequestView& request, workload::Outcome outcome, Time now) override {
    const Awaited* awaited = close(request);
    if (!awaited || outcome == workload::Outcome::rejected) return;
    const double lived_s = sim::to_seconds(now - awaited->decided);
    if (lived_s > awaited->estimate_s + margin_s_) move_margin(*awaited, lived_s);
  }

 private:
  bool learns() const { return config_.margin.quantile || config_.calibration.forgetting; }
  void set_classes(const Scope& scope) {
    classes_.clear();
    for (const workload::SloClass& slo_class : scope.slo_classes) {
      classes_.push_back(
          {.limit_s = budget_s(slo_class) * config_.headroom, .priority = slo_class.priority});
    }
  }
  struct Class {
    double limit_s = 0;
    std::int64_t priority = 0;
  };
  /// The last decision, until it is committed.
  struct Pending {
    bool is_protected = false;
    PrefixGroups::Pass pass = PrefixGroups::Pass::none;
    double estimate_s = 0;
    double limit_s = 0;  ///< what is left of the budget
    std::optional<sim::InstanceId> priced;
    Features features{};
  };
  /// An admitted request, until its first token.
  struct Awaited {
    bool is_open = false;
    bool is_protected = false;
    double estimate_s = 0;
    std::optional<sim::InstanceId> priced;
    Features features{};
    Time decided{0};
    Time dispatched{0};
  };
  /// The requests ahead on an instance.
  struct Backlog {
    double requests = 0;
    double uncached_tokens = 0;
  };

  double budget_s(const workload::SloClass& slo_class) const {
    for (const TtftBudget& budget : config_.budgets) {
      if (budget.slo_class == slo_class.name) return budget.budget_s;
    }
    return slo_class.target_ttft_s.value_or(std::numeric_limits<double>::infinity());
  }

  // ---- the estimate ------------------------------------------------------------------------

  void predict(const signals::RequestView& request, const signals::View& view, Time now) {
    if (config_.calibration.forgetting && !regression_) start_regression(view);
    queued_ = queued_ahead(request, view);
    pending_.estimate_s = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < view.size(); ++i) {
      if (config_.instance == PricedInstance::routed && !view.is_next_choice(i)) continue;
      Features features{};
      const double estimate_s = estimate_on(i, request, view, now, features);
      if (pending_.priced && estimate_s >= pending_.estimate_s) continue;
      pending_.estimate_s = estimate_s;
      pending_.priced = view.id(i);
      pending_.features = features;
    }
  }

  bool keeps_budget(const signals::RequestView& request, const signals::View& view, Time now) {
    double limit_s = classes_[request.slo_class()].limit_s;
    const ColdStart& cold = config_.cold_start;
    if (cold.warming_share > 0 && best_match(request, view) >= cold.warming_match) {
      limit_s *= 1 - cold.warming_share;
    }
    const double passed_s = sim::to_seconds(now - request.arrival());
    pending_.limit_s = limit_s - passed_s;
    return passed_s + pending_.estimate_s + margin_s_ <= limit_s;
  }

  static double best_match(const signals::RequestView& request, const signals::View& view) {
    double best = 0;
    for (std::size_t i = 0; i < view.size(); ++i) {
      best = std::max(best, view.prefix_match(request, i));
    }
    return best;
  }

  bool is_ahead(std::size_t slo_class, const signals::RequestView& request) const {
    return config_.ahead == WorkAhead::all || classes_[slo_class].priority >= request.priority();
  }

  // Each instance's share of the requests still in the gateway.
  Backlog queued_ahead(const signals::RequestView& request, const signals::View& view) const {
    signals::Outstanding::Sum sum;
    const bool all = config_.estimator == TtftEstimator::queue_depth;
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      if (all || is_ahead(k, request)) sum += view.outstanding().queued(k);
    }
    const auto instances = static_cast<double>(view.size());
    return {static_cast<double>(sum.requests) / instances,
            static_cast<double>(sum.uncached_tokens) / instances};
  }

  Backlog ahead_on(std::size_t i, const signals::RequestView& request,
                   const signals::View& view) const {
    signals::Outstanding::Sum sum;
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      if (is_ahead(k, request)) sum += view.outstanding().awaiting(view.id(i), k);
    }
    return {static_cast<double>(sum.requests) + queued_.requests,
            static_cast<double>(sum.uncached_tokens) + queued_.uncached_tokens};
  }

  double estimate_on(std::size_t i, const signals::RequestView& request, const signals::View& view,
                     Time now, Features& features) const {
    if (config_.estimator == TtftEstimator::exact) {
      const Time at = view.exact_first_token(request, i);
      return sim::is_set(at) ? sim::to_seconds(at - now) : std::numeric_limits<double>::infinity();
    }
    const auto uncached =
        static_cast<double>(request.input_tokens() - view.sent_tokens(request, i));
    const double prefill_s = (costs_.empty_us + costs_.prompt_token_us * uncached) / 1e6;
    if (config_.estimator == TtftEstimator::queue_depth) {
      return depth_on(i, view) * avg_step_s_ + prefill_s;
    }
    const Backlog ahead = ahead_on(i, request, view);
    if (config_.estimator == TtftEstimator::priority_aware) {
      const double wait_s =
          rest_of_step_s(i, view, avg_step_s_, now) + ahead.requests * avg_step_s_;
      return wait_s + prefill_s;
    }
    const auto decodes = static_cast<double>(view.outstanding().decoding(view.id(i)));
    double estimate_s = 0;
    if (regression_) {
      features = {1, kTokens * uncached, kTokens * ahead.uncached_tokens, kRequests * decodes};
      estimate_s = regression_->predict(features);
    } else {
      const double step_us = costs_.empty_us + costs_.decode_us * decodes;
      const double tokens = ahead.uncached_tokens + uncached;
      const double steps = std::max(std::ceil(tokens / tokens_per_step(i, view, decodes)), 1.0);
      estimate_s = rest_of_step_s(i, view, step_us / 1e6, now) +
                   (steps * step_us + costs_.prompt_token_us * tokens) / 1e6;
    }
    if (config_.estimator == TtftEstimator::seats_and_memory) {
      estimate_s += release_wait_s(i, view, ahead.requests + decodes, uncached, now);
    }
    return estimate_s;
  }

  double depth_on(std::size_t i, const signals::View& view) const {
    if (!config_.corrects_staleness) return view.occupancy(i).waiting;
    const signals::InstanceSignal seen = view.instance(i);
    const auto later = view.outstanding().sent_after(view.id(i), seen.measured).requests;
    return static_cast<double>(seen.waiting + later) + queued_.requests;
  }

  static double tokens_per_step(std::size_t i, const signals::View& view, double decodes) {
    return std::max(static_cast<double>(view.capacity(i).max_num_batched_tokens) - decodes, 1.0);
  }

  // Steps follow each other without gaps while the instance is busy.
  static double rest_of_step_s(std::size_t i, const signals::View& view, double step_s, Time now) {
    const signals::Outstanding& own = view.outstanding();
    const std::int64_t step_ns = span(step_s).ns;
    if (own.in_flight(view.id(i)) == 0 || step_ns == 0) return 0;
    return sim::to_seconds({step_ns - (now - own.last_known_step(view.id(i))).ns % step_ns});
  }

  // Time until enough requests have left to free a seat and memory for the request.
  double release_wait_s(std::size_t i, const signals::View& view, double before, double uncached,
                        Time now) const {
    const signals::Outstanding::Releases& releases = view.outstanding().releases(view.id(i));
    const signals::Capacity capacity = view.capacity(i);
    double count = before - static_cast<double>(capacity.max_num_seqs) + 1;
    if (count < 1 && is_memory_full(i, view, capacity, uncached)) count = 1;
    if (count <= 0 || releases.mean_gap_s == 0) return 0;
    const double passed_s = sim::is_set(releases.last) ? sim::to_seconds(now - releases.last) : 0;
    return std::max(count * releases.mean_gap_s - passed_s, 0.0);
  }

  static bool is_memory_full(std::size_t i, const signals::View& view,
                             const signals::Capacity& capacity, double uncached) {
    const signals::InstanceSignal seen = view.instance(i);
    const double free = (1 - seen.kv_utilization) * static_cast<double>(capacity.num_kv_blocks);
    const auto later = static_cast<double>(
        view.outstanding().sent_after(view.id(i), seen.measured).uncached_tokens);
    const double needed = (later + uncached) / static_cast<double>(capacity.block_size_tokens);
    return needed > free;
  }

  // ---- learning ----------------------------------------------------------------------------

  // Each token ahead also costs its share of a step.
  void start_regression(const signals::View& view) {
    const TtftCalibration& c = config_.calibration;
    const double per_token_us = costs_.empty_us / tokens_per_step(0, view, 0);
    regression_.emplace(std::vector{costs_.empty_us / 1e6, costs_.prompt_token_us / 1e6 / kTokens,
                                    (costs_.prompt_token_us + per_token_us) / 1e6 / kTokens,
                                    costs_.decode_us / 1e6 / kRequests},
                        numerics::RegressionRules{c.forgetting.value_or(1), c.initial_variance,
                                                  c.largest_trace, c.outlier_sigmas});
  }

  Awaited* close(const signals::RequestView& request) {
    const std::size_t row = request.id().index();
    if (row >= awaited_.size() || !awaited_[row].is_open) return nullptr;
    awaited_[row].is_open = false;
    --num_awaited_;
    return &awaited_[row];
  }

  void move_margin(const Awaited& awaited, double taken_s) {
    if (!config_.margin.quantile || awaited.is_protected) return;
    const double kept = taken_s <= awaited.estimate_s + margin_s_ ? 1 : 0;
    margin_s_ += config_.margin.step_s * (*config_.margin.quantile - kept);
  }

  PredictiveTtft config_;
  StepCosts costs_;
  double avg_step_s_;
  std::vector<Class> classes_;
  PrefixGroups groups_;
  Pending pending_;
  Backlog queued_;  // of the last decision
  double margin_s_ = 0;
  std::optional<numerics::RecursiveLeastSquares> regression_;
  std::vector<Awaited> awaited_;  // by request; only if the policy learns
  std::int64_t num_awaited_ = 0;
  std::int64_t rejected_in_a_row_ = 0;
};

}  // namespace

void PredictiveTtft::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (budgets[i].slo_class != budgets[j].slo_class) continue;
      out.push_back({sim::index_path(sim::join_path(path, "budgets"), i) + ".slo_class",
                     "'" + budgets[i].slo_class + "'",
                     "must differ from the classes of the other budgets"});
    }
  }
  if (calibration.forgetting && estimator != TtftEstimator::token_backlog &&
      estimator != TtftEstimator::seats_and_memory) {
    out.push_back({sim::join_path(path, "calibration.forgetting"),
                   sim::to_text(*calibration.forgetting),
                   "requires an estimator of tokens: token_backlog or seats_and_memory"});
  }
}

std::unique_ptr<AdmissionPolicy> make(const PredictiveTtft& config, const Scope& scope) {
  return std::make_unique<PredictiveTtftPolicy>(config, scope);
}

}  // namespace spillway::gateway
