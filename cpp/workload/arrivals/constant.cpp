#include "workload/arrivals/constant.h"

#include "workload/arrivals/arrivals.h"

namespace spillway::workload {

namespace {

class ConstantProcess final : public ArrivalProcess {
 public:
  explicit ConstantProcess(double rate_per_s) : gap_s_(1.0 / rate_per_s) {}
  double gap_s(sim::Draws&) override { return gap_s_; }

 private:
  double gap_s_;
};

}  // namespace

std::unique_ptr<ArrivalProcess> make(const Constant&, double rate_per_s) {
  return std::make_unique<ConstantProcess>(rate_per_s);
}

}  // namespace spillway::workload
