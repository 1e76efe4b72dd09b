#include "workload/arrivals/gamma.h"

#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

class GammaProcess final : public ArrivalProcess {
 public:
  GammaProcess(double cv, double rate_per_s)
      : shape_(1.0 / (cv * cv)), scale_s_(cv * cv / rate_per_s) {}
  double gap_s(sim::Draws& draws) override { return draws.gamma(shape_) * scale_s_; }

 private:
  double shape_;
  double scale_s_;
};

}  // namespace

std::unique_ptr<ArrivalProcess> make(const Gamma& config, double rate_per_s) {
  return std::make_unique<GammaProcess>(config.cv, rate_per_s);
}

}  // namespace spillway::workload
