#include "workload/arrivals/poisson.h"

#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

class PoissonProcess final : public ArrivalProcess {
 public:
  explicit PoissonProcess(double rate_per_s) : mean_s_(1.0 / rate_per_s) {}
  double gap_s(sim::Draws& draws) override { return draws.exponential() * mean_s_; }

 private:
  double mean_s_;
};

}  // namespace

std::unique_ptr<ArrivalProcess> make(const Poisson&, double rate_per_s) {
  return std::make_unique<PoissonProcess>(rate_per_s);
}

}  // namespace spillway::workload
