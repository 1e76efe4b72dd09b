#include "router/pickers/weighted_random.h"

#include <numeric>

#include "router/pickers/picker.h"

namespace spillway::router {

namespace {

class WeightedRandomPicker final : public Picker {
 public:
  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    if (!(sum > 0)) return static_cast<std::size_t>(draws.below(scores.size()));
    double left = draws.uniform() * sum;
    std::size_t chosen = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] <= 0) continue;
      chosen = i;  // a rounding error goes to the last instance with a positive score
      left -= scores[i];
      if (left < 0) break;
    }
    return chosen;
  }
};

}  // namespace

std::unique_ptr<Picker> make(const WeightedRandom&) {
  return std::make_unique<WeightedRandomPicker>();
}

}  // namespace spillway::router
