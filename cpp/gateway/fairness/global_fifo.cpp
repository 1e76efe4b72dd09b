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
    const auto oldest = oldest_of(queues, [](sim::TenantId) { return true; });
    if (!oldest || may_start(*oldest)) return oldest;
    if (!may_start.waits_for_own_limit(*oldest)) return std::nullopt;
    const auto other =
        oldest_of(queues, [&](sim::TenantId flow) { return !may_start.waits_for_own_limit(flow); });
    return other && may_start(*other) ? other : std::nullopt;
  }

 private:
  // The flow with the longest waiting head, of those that count.
  static std::optional<sim::TenantId> oldest_of(const TenantQueues& queues, const auto& counts) {
    std::optional<sim::TenantId> oldest;
    std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
    for (const sim::TenantId flow : queues.backlogged()) {
      const std::uint64_t serial = queues.head(flow).serial;
      if (serial < smallest && counts(flow)) {
        smallest = serial;
        oldest = flow;
      }
    }
    return oldest;
  }
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const GlobalFifo&, std::span<const double>) {
  return std::make_unique<GlobalFifoPolicy>();
}

}  // namespace spillway::gateway
