#include "gateway/fairness/global_fifo.h"

#include <limits>

#include "gateway/fairness/fairness.h"

namespace spillway::gateway {

namespace {

class GlobalFifoPolicy final : public FairnessPolicy {
 public:
  explicit GlobalFifoPolicy(HeadOrder order) : by_ordering_(order == HeadOrder::ordering) {}
  void joined(sim::TenantId, const TenantQueues&, sim::Time) override {}

  std::optional<sim::TenantId> next(const TenantQueues& queues, const MayStart& may_start,
                                    sim::Time) override {
    const auto first = first_of(queues, [](sim::TenantId) { return true; });
    if (!first || may_start(*first)) return first;
    if (!may_start.waits_for_own_limit(*first)) return std::nullopt;
    const auto other =
        first_of(queues, [&](sim::TenantId flow) { return !may_start.waits_for_own_limit(flow); });
    return other && may_start(*other) ? other : std::nullopt;
  }

 private:
  // The flow whose head is first, of those that count.
  std::optional<sim::TenantId> first_of(const TenantQueues& queues, const auto& counts) const {
    return by_ordering_ ? first_by_ordering(queues, counts) : oldest_of(queues, counts);
  }

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

  static std::optional<sim::TenantId> first_by_ordering(const TenantQueues& queues,
                                                        const auto& counts) {
    std::optional<sim::TenantId> first;
    for (const sim::TenantId flow : queues.backlogged()) {
      if ((!first || queues.is_before(flow, *first)) && counts(flow)) first = flow;
    }
    return first;
  }

  bool by_ordering_;
};

}  // namespace

std::unique_ptr<FairnessPolicy> make(const GlobalFifo& config, std::span<const double>) {
  return std::make_unique<GlobalFifoPolicy>(config.order);
}

}  // namespace spillway::gateway
