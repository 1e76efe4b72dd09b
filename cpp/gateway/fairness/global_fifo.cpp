#include "gateway/fairness/global_fifo.h"

#include <limits>

namespace spillway::gateway {

namespace {

class GlobalFifoPolicy final : public FairnessPolicy {
 public:
  void push(sim::TenantId, const TenantQueues&, sim::Time) override {}

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    std::optional<sim::TenantId> oldest;
    std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t i = 0; i < queues.num_flows(); ++i) {
      const sim::TenantId flow{i};
      if (queues.length(flow) > 0 && queues.head(flow).serial < smallest) {
        smallest = queues.head(flow).serial;
        oldest = flow;
      }
    }
    return oldest && may_start(*oldest) ? oldest : std::nullopt;
  }

  void charge(sim::TenantId, ChargePhase, double, sim::Time) override {}
  void settle(sim::TenantId, double, double, sim::Time) override {}
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const GlobalFifo&) {
  return std::make_unique<GlobalFifoPolicy>();
}

}  // namespace spillway::gateway
