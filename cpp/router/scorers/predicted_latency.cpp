#include "router/scorers/predicted_latency.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

constexpr double kNoSpread = 1e-9;

// Values from the smallest to the largest as 0 to 1; 0.5 for all if they are equal.
class Scale {
 public:
  void add(double value) {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  bool spreads() const { return high_ - low_ > kNoSpread; }
  double place(double value) const { return spreads() ? (value - low_) / (high_ - low_) : 0.5; }

 private:
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

class PredictedLatencyScorer final : public Scorer {
 public:
  explicit PredictedLatencyScorer(const PredictedLatency& config) : config_(config) {
    const double sum = config.ttft_weight + config.tpot_weight;
    ttft_weight_ = sum > 0 ? config.ttft_weight / sum : 1;
    tpot_weight_ = sum > 0 ? config.tpot_weight / sum : 0;
  }

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    const std::size_t n = scores.size();
    predicted_.resize(n);
    bool is_any_known = false;
    for (std::size_t i = 0; i < n; ++i) {
      predicted_[i] = view.prediction(request, i);
      is_any_known = is_any_known || predicted_[i];
    }
    if (!is_any_known) return score_without(request, view, scores);
    std::fill(scores.begin(), scores.end(), 0.0);
    const auto ttft = [&](std::size_t i) { return predicted_[i]->ttft_headroom_ms; };
    const auto tpot = [&](std::size_t i) { return predicted_[i]->tpot_headroom_ms; };
    const bool furthest = config_.strategy == HeadroomStrategy::most;
    // An instance of which nothing is known meets the targets; from here on all are known.
    if (score_those(scores, furthest, [&](std::size_t i) {
          return !predicted_[i] || (ttft(i) >= 0 && tpot(i) >= 0);
        })) {
      return;
    }
    if (score_those(scores, false, [&](std::size_t i) { return view.in_flight(i) == 0; })) return;
    if (score_those(scores, false, [&](std::size_t i) { return ttft(i) >= 0; })) return;
    if (score_those(scores, false, [&](std::size_t i) { return tpot(i) >= 0; })) return;
    score_those(scores, false, [](std::size_t) { return true; });
  }

 private:
  void score_without(const signals::RequestView& request, const signals::View& view,
                     std::span<double> scores) const {
    double sum = config_.kv_weight + config_.queue_weight + config_.prefix_weight;
    if (sum == 0) sum = 1;
    std::int32_t longest = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      longest = std::max(longest, view.occupancy(i).waiting);
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double queue = longest == 0 ? 1
                                        : static_cast<double>(longest - view.occupancy(i).waiting) /
                                              static_cast<double>(longest);
      const double mean = config_.kv_weight / sum * (1 - view.kv_utilization(i)) +
                          config_.queue_weight / sum * queue +
                          config_.prefix_weight / sum * view.prefix_match(request, i);
      scores[i] = std::floor(100 * mean + 0.5) / 100;
    }
  }

  // Scores some of the instances by their distance from the targets; false: there are none.
  template <class IsMember>
  bool score_those(std::span<double> scores, bool furthest, const IsMember& is_member) const {
    Scale ttfts;
    Scale tpots;
    bool is_any = false;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (!is_member(i)) continue;
      is_any = true;
      ttfts.add(ttft_distance(i));
      tpots.add(tpot_distance(i));
    }
    if (!is_any) return false;
    double ttft_weight = ttft_weight_;
    double tpot_weight = tpot_weight_;
    if (ttfts.spreads() != tpots.spreads()) {
      ttft_weight = ttfts.spreads() ? 1 : 0;
      tpot_weight = 1 - ttft_weight;
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (!is_member(i)) continue;
      const double distance =
          ttft_weight * ttfts.place(ttft_distance(i)) + tpot_weight * tpots.place(tpot_distance(i));
      // Whole hundredths, from 0.01 on.
      scores[i] = (std::trunc((furthest ? distance : 1 - distance) * 100) + 1) / 100;
    }
    return true;
  }
  double ttft_distance(std::size_t i) const {
    const auto& predicted = predicted_[i];
    return predicted ? std::abs(predicted->ttft_headroom_ms) : 0;
  }
  double tpot_distance(std::size_t i) const {
    const auto& predicted = predicted_[i];
    return predicted ? std::abs(predicted->tpot_headroom_ms) : 0;
  }

  PredictedLatency config_;
  double ttft_weight_;
  double tpot_weight_;
  std::vector<std::optional<signals::Prediction>> predicted_;
};

}  // namespace

std::unique_ptr<Scorer> make(const PredictedLatency& config) {
  return std::make_unique<PredictedLatencyScorer>(config);
}

}  // namespace spillway::router
