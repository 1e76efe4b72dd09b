#include "router/pickers/best.h"

#include <algorithm>

#include "router/pick_tied.h"
#include "router/pickers/picker.h"

namespace spillway::router {

namespace {

class BestPicker final : public Picker {
 public:
  explicit BestPicker(Ties ties) : ties_(ties) {}
  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    const auto best = std::max_element(scores.begin(), scores.end());
    if (ties_ == Ties::first) return static_cast<std::size_t>(best - scores.begin());
    const auto tied = static_cast<std::size_t>(std::count(best, scores.end(), *best));
    return pick_tied(ties_, static_cast<std::size_t>(best - scores.begin()), tied, draws,
                     [&](std::size_t i) { return scores[i] == *best; });
  }

 private:
  Ties ties_;
};

}  // namespace

std::unique_ptr<Picker> make(const Best& config) {
  return std::make_unique<BestPicker>(config.ties);
}

}  // namespace spillway::router
