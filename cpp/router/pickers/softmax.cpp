#include "router/pickers/softmax.h"

#include <algorithm>

#include "router/pickers/picker.h"
#include "sim/math.h"

namespace spillway::router {

namespace {

class SoftmaxPicker final : public Picker {
 public:
  explicit SoftmaxPicker(double temperature) : temperature_(temperature) {}
  std::size_t pick(std::span<const double> scores, sim::Draws& draws) const override {
    const double best = *std::max_element(scores.begin(), scores.end());
    const auto weight = [&](double score) { return sim::exp((score - best) / temperature_); };
    double sum = 0;
    for (const double score : scores) sum += weight(score);
    double left = draws.uniform() * sum;
    std::size_t chosen = 0;
    for (; chosen + 1 < scores.size(); ++chosen) {
      left -= weight(scores[chosen]);
      if (left < 0) break;
    }
    return chosen;
  }

 private:
  double temperature_;
};

}  // namespace

std::unique_ptr<Picker> make(const Softmax& config) {
  return std::make_unique<SoftmaxPicker>(config.temperature);
}

}  // namespace spillway::router
