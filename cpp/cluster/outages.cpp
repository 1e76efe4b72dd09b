#include "cluster/outages.h"

#include <algorithm>

#include "fleet/faults.h"

namespace spillway::cluster {

using sim::Time;

Outages::Outages(std::span<const FaultReport> reports) {
  for (const FaultReport& report : reports) {
    if (report.kind != fleet::Crash::kind && report.kind != fleet::Hang::kind) continue;
    const auto instance = static_cast<std::size_t>(report.instance);
    if (of_.size() <= instance) of_.resize(instance + 1);
    std::vector<Outage>& own = of_[instance];
    const Time end = sim::is_set(report.ended) ? report.ended : sim::kForever;
    // A crash of an instance that does not serve takes the place of the failure before.
    const bool goes_on = !own.empty() && own.back().end == sim::kForever;
    if (!goes_on) own.push_back({.begin = report.began});
    own.back().end = end;
  }
}

Time Outages::overlap(std::size_t instance, Time since, Time until) const {
  Time sum{0};
  if (instance >= of_.size() || until <= since) return sum;
  const std::vector<Outage>& own = of_[instance];
  auto outage = std::ranges::upper_bound(own, since, {}, &Outage::end);
  for (; outage != own.end() && outage->begin < until; ++outage) {
    sum = sum + (std::min(outage->end, until) - std::max(outage->begin, since));
  }
  return sum;
}

}  // namespace spillway::cluster
