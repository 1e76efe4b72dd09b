#include "gateway/fairness/global_fifo.h"

#include <limits>

#include "gateway/fairness/fairness.h"

namespace spillway::gateway {

namespace {

class GlobalFifoPolicy final : public FairnessPolicy {
 public:
  void joined(sim::TenantId, const TenantQueues&, sim::Time) override {}

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    std::optional<sim::TenantId> oldest;
    std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
    for (const sim::TenantId flow : queues.backlogged()) {
      const std::uint64_t serial = queues.head(flow).serial;
      if (serial < smallest) {
        smallest = serial;
        oldest = flow;
      }
    }
    return oldest && may_start(*oldest) ? oldest : std::nullopt;
  }
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const GlobalFifo&, std::span<const double>) {
  return std::make_unique<GlobalFifoPolicy>();
}

}  // namespace spillway::gateway
