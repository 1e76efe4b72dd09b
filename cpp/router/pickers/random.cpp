#include "router/pickers/random.h"

#include "router/pickers/picker.h"

namespace spillway::router {

namespace {

class RandomPicker final : public Picker {
 public:
  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    return static_cast<std::size_t>(draws.below(scores.size()));
  }
};

}  // namespace

std::unique_ptr<Picker> make(const Random&) { return std::make_unique<RandomPicker>(); }

}  // namespace spillway::router
