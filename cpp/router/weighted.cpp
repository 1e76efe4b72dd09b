#include "router/weighted.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "router/filters/filter.h"
#include "router/least_load.h"
#include "router/pickers/picker.h"
#include "router/policy.h"
#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class WeightedPolicy final : public RoutingPolicy {
 public:
  explicit WeightedPolicy(const Weighted& config)
      : picker_(std::visit([](const auto& c) { return make(c); }, config.picker)) {
    for (const AnyFilter& filter : config.filters) {
      filters_.push_back(std::visit([](const auto& c) { return make(c); }, filter));
    }
    for (const AnyScorer& scorer : config.scorers) {
      std::visit([&](const auto& c) { scorers_.push_back({make(c), 0}); }, scorer);
    }
    set_weights(config);
    if (config.follows() != signals::Follows::nothing) {
      least_.emplace(scorers_.front().scorer->load(), std::get<Best>(config.picker).ties);
    }
  }

  sim::InstanceId pick(const signals::RequestView& request, const signals::View& view, sim::Time,
                       sim::Draws& draws) override {
    // Scores are needed by a log of decisions alone, and then changes are not followed.
    if (least_ && view.load_changes()) return least_->pick(view, draws);
    if (filters_.empty()) {
      rate(request, view);
      return view.id(picker_->pick(scores_, draws));
    }
    kept_.assign(view.size(), true);
    for (const auto& filter : filters_) {
      passed_ = kept_;
      filter->keep(request, view, draws, passed_);
      if (std::ranges::find(passed_, true) != passed_.end()) {
        kept_.swap(passed_);
      } else if (filter->rejects()) {
        return kNoInstance;
      }
    }
    candidates_.clear();
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i]) candidates_.push_back(view.id(i));
    }
    rate(request, view.of(candidates_));
    const sim::InstanceId chosen = candidates_[picker_->pick(scores_, draws)];
    spread_scores();
    return chosen;
  }
  bool may_reject() const override {
    return std::ranges::any_of(filters_, [](const auto& filter) { return filter->rejects(); });
  }
  void learn(const signals::RequestView& request, sim::InstanceId chosen) override {
    for (const Part& part : scorers_) part.scorer->learn(request, chosen);
  }
  std::span<const double> scores() const override { return scores_; }
  void change(const Router& to) override { set_weights(std::get<Weighted>(to)); }

 private:
  void set_weights(const Weighted& config) {
    const auto weight = [](const AnyScorer& scorer) {
      return std::visit([](const auto& c) { return c.weight; }, scorer);
    };
    double sum = 0;
    for (const AnyScorer& scorer : config.scorers) sum += weight(scorer);
    for (std::size_t i = 0; i < scorers_.size(); ++i) {
      scorers_[i].weight = weight(config.scorers[i]) / sum;
    }
  }
  // Scores are added scorer by scorer in the listed order, so that ties are exact.
  void rate(const signals::RequestView& request, const signals::View& view) {
    scores_.assign(view.size(), 0.0);
    column_.resize(view.size());
    for (const Part& part : scorers_) {
      part.scorer->score(request, view, column_);
      const double weight = part.weight;
      for (std::size_t i = 0; i < scores_.size(); ++i) {
        scores_[i] += std::min(std::max(column_[i], 0.0), 1.0) * weight;
      }
    }
  }
  // Spreads the scores of the candidates over all instances; those filtered out get the worst
  // score.
  void spread_scores() {
    std::size_t from = scores_.size();
    scores_.resize(kept_.size());
    for (std::size_t i = kept_.size(); i-- > 0;) {
      scores_[i] = kept_[i] ? scores_[--from] : -std::numeric_limits<double>::infinity();
    }
  }

  struct Part {
    std::unique_ptr<Scorer> scorer;
    double weight;
  };
  std::vector<std::unique_ptr<Filter>> filters_;
  std::vector<Part> scorers_;
  std::unique_ptr<Picker> picker_;
  std::optional<LeastLoad> least_;  // only with a single scorer by a load
  std::vector<double> scores_;
  std::vector<double> column_;
  std::vector<bool> kept_;
  std::vector<bool> passed_;
  std::vector<sim::InstanceId> candidates_;
};

}  // namespace

void Weighted::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (scorers.empty()) {
    out.push_back({sim::join_path(path, "scorers"), "[]", "must hold at least one scorer"});
  }
  for (std::size_t i = 0; i < scorers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (scorers[i].index() != scorers[j].index()) continue;
      const std::string name(
          std::visit([](const auto& scorer) { return scorer.kind; }, scorers[i]));
      out.push_back({sim::index_path(sim::join_path(path, "scorers"), i) + ".kind",
                     "'" + name + "'", "must not occur twice"});
    }
  }
}

signals::Follows Weighted::follows() const {
  if (!filters.empty() || scorers.size() != 1 || !std::holds_alternative<Best>(picker)) {
    return signals::Follows::nothing;
  }
  return signals::follows_of(scorers.front());
}

std::unique_ptr<RoutingPolicy> make(const Weighted& config) {
  return std::make_unique<WeightedPolicy>(config);
}

}  // namespace spillway::router
