#include "router/pickers/best.h"

#include <algorithm>

namespace spillway::router {

namespace {

class BestPicker final : public Picker {
 public:
  explicit BestPicker(Ties ties) : ties_(ties) {}
  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    const auto best = std::max_element(scores.begin(), scores.end());
    const auto tied = static_cast<std::uint64_t>(std::count(best, scores.end(), *best));
    auto chosen = best;
    if (ties_ == Ties::random && tied > 1) {
      for (std::uint64_t skip = draws.below(tied); skip > 0; --skip) {
        chosen = std::find(chosen + 1, scores.end(), *best);
      }
    }
    return static_cast<std::size_t>(chosen - scores.begin());
  }

 private:
  Ties ties_;
};

}  // namespace

std::unique_ptr<Picker> make(const Best& config) {
  return std::make_unique<BestPicker>(config.ties);
}

}  // namespace spillway::router
