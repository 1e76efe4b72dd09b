#include "workload/arrivals/weibull.h"

#include "sim/math.h"
#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

double squared_cv(double shape) {
  const double mean = sim::gamma(1.0 + 1.0 / shape);
  return sim::gamma(1.0 + 2.0 / shape) / (mean * mean) - 1.0;
}

// The shape whose coefficient of variation is `cv`, by bisection; `cv` falls as the shape grows.
double shape_for(double cv) {
  double low = 0.1;
  double high = 100.0;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (squared_cv(middle) > cv * cv ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

class WeibullProcess final : public ArrivalProcess {
 public:
  WeibullProcess(double cv, double rate_per_s)
      : inverse_shape_(1.0 / shape_for(cv)),
        scale_s_(1.0 / (rate_per_s * sim::gamma(1.0 + inverse_shape_))) {}
  double gap_s(sim::Draws& draws) override {
    return scale_s_ * sim::pow(draws.exponential(), inverse_shape_);
  }

 private:
  double inverse_shape_;
  double scale_s_;
};

}  // namespace

std::unique_ptr<ArrivalProcess> make(const Weibull& config, double rate_per_s) {
  return std::make_unique<WeibullProcess>(config.cv, rate_per_s);
}

}  // namespace spillway::workload
