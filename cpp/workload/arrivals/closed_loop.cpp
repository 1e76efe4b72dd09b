#include "workload/arrivals/closed_loop.h"

#include <limits>

#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

class Never final : public ArrivalProcess {
 public:
  double gap_s(sim::Draws&) override { return std::numeric_limits<double>::infinity(); }
};

}  // namespace

std::unique_ptr<ArrivalProcess> make(const ClosedLoop&, double) {
  return std::make_unique<Never>();
}

}  // namespace spillway::workload
