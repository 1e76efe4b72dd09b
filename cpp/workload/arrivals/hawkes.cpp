#include "workload/arrivals/hawkes.h"

#include <algorithm>

#include "sim/math.h"
#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

// Exact, without thinning: between arrivals the rate is that of two independent processes, a
// Poisson one and one whose rate decays (Dassios and Zhao 2013).
class HawkesProcess final : public ArrivalProcess {
 public:
  HawkesProcess(const Hawkes& config, double rate_per_s)
      : base_per_s_(rate_per_s * (1 - config.branching_ratio)),
        jump_per_s_(config.branching_ratio / config.decay_s),
        decay_s_(config.decay_s),
        excess_per_s_(rate_per_s * config.branching_ratio) {}

  double gap_s(sim::Draws& draws) override {
    double gap = draws.exponential() / base_per_s_;
    const double triggered = excess_per_s_ * decay_s_;
    const double share = triggered > 0 ? draws.exponential() / triggered : 1;
    if (share < 1) gap = std::min(gap, -decay_s_ * sim::log1p(-share));
    excess_per_s_ = excess_per_s_ * sim::exp(-gap / decay_s_) + jump_per_s_;
    return gap;
  }

 private:
  double base_per_s_;
  double jump_per_s_;
  double decay_s_;
  double excess_per_s_;  // after the last arrival; at first its mean, so the mean rate is constant
};

}  // namespace

std::unique_ptr<ArrivalProcess> make(const Hawkes& config, double rate_per_s) {
  return std::make_unique<HawkesProcess>(config, rate_per_s);
}

}  // namespace spillway::workload
