#include "workload/requests.h"

#include <algorithm>
#include <numeric>

namespace spillway::workload {

const std::vector<std::uint32_t>& Requests::name_ranks() const {
  std::call_once(ranked_, [this] {
    std::vector<std::string> names(size());
    for (std::size_t row = 0; row < size(); ++row) names[row] = name(row);
    std::vector<std::uint32_t> order(size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return names[a] < names[b]; });
    name_ranks_.resize(size());
    for (std::uint32_t rank = 0; rank < order.size(); ++rank) name_ranks_[order[rank]] = rank;
  });
  return name_ranks_;
}

Journal::Journal(std::size_t size)
    : admitted(size, sim::kUnset),
      dispatched(size, sim::kUnset),
      instance(size, -1),
      enqueued(size, sim::kUnset),
      scheduled(size, sim::kUnset),
      first_token(size, sim::kUnset),
      last_token(size, sim::kUnset),
      finished(size, sim::kUnset),
      emitted(size, 0),
      preemptions(size, 0),
      outcome(size, Outcome::in_transit),
      reason(size) {}

namespace {

// For each of the source's names its position in `known`; unknown names are appended.
template <class Named>
std::vector<std::uint16_t> resolve(const std::vector<std::string>& names,
                                   std::vector<Named>& known) {
  std::vector<std::uint16_t> position;
  for (const std::string& name : names) {
    const std::size_t index = sim::index_of_name(known, name);
    if (index == known.size()) {
      Named added;
      added.name = name;
      known.push_back(added);
    }
    position.push_back(static_cast<std::uint16_t>(index));
  }
  return position;
}

std::vector<std::uint16_t> translate(const std::vector<std::uint16_t>& column,
                                     const std::vector<std::uint16_t>& position) {
  std::vector<std::uint16_t> translated(column.size());
  std::transform(column.begin(), column.end(), translated.begin(),
                 [&](std::uint16_t index) { return position[index]; });
  return translated;
}

}  // namespace

RequestTable::RequestTable(std::shared_ptr<const Requests> requests,
                           std::vector<Tenant> known_tenants, std::vector<SloClass> known_classes,
                           sim::Time warm_up)
    : source(std::move(requests)),
      tenants(std::move(known_tenants)),
      slo_classes(std::move(known_classes)) {
  tenant = translate(source->tenant, resolve(source->tenants, tenants));
  slo_class = translate(source->slo_class, resolve(source->slo_classes, slo_classes));
  group.assign(size(), kNoGroup);
  for (std::size_t row = 0; row < size(); ++row) {
    if (source->arrival[row] < warm_up) continue;
    const Group pair{tenant[row], slo_class[row]};
    const std::size_t index =
        row > 0 && group[row - 1] != kNoGroup && groups[group[row - 1]] == pair
            ? group[row - 1]
            : static_cast<std::size_t>(std::find(groups.begin(), groups.end(), pair) -
                                       groups.begin());
    if (index == groups.size()) groups.push_back(pair);
    group[row] = static_cast<std::uint16_t>(index);
  }
}

}  // namespace spillway::workload
