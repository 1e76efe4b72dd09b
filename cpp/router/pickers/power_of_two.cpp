#include "router/pickers/power_of_two.h"

#include "router/pickers/picker.h"

namespace spillway::router {

namespace {

class PowerOfTwoPicker final : public Picker {
 public:
  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    if (scores.size() == 1) return 0;
    const auto first = static_cast<std::size_t>(draws.below(scores.size()));
    auto second = static_cast<std::size_t>(draws.below(scores.size() - 1));
    if (second >= first) ++second;
    return scores[second] > scores[first] ? second : first;
  }
};

}  // namespace

std::unique_ptr<Picker> make(const PowerOfTwo&) { return std::make_unique<PowerOfTwoPicker>(); }

}  // namespace spillway::router
