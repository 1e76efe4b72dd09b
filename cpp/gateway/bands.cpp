#include "gateway/bands.h"

#include <algorithm>
#include <utility>

namespace spillway::gateway {

using sim::RequestId;
using sim::TenantId;
using sim::Time;

std::vector<Band> by_priority(std::vector<Band> bands) {
  std::sort(bands.begin(), bands.end(),
            [](const Band& a, const Band& b) { return a.priority > b.priority; });
  return bands;
}

Bands::Bands(const Gateway& config, const workload::RequestTable& requests)
    : requests_(requests), max_queued_(config.max_queued), sheds_(config.queue_shedding) {
  const std::vector<Band> bands = by_priority(config.bands);
  std::vector<std::vector<std::size_t>> classes(bands.size());
  for (std::size_t k = 0; k < requests.slo_classes.size(); ++k) {
    std::size_t at = 0;
    while (at + 1 < bands.size() && requests.slo_classes[k].priority < bands[at].priority) ++at;
    classes[at].push_back(k);
    band_of_class_.push_back(at);
  }
  for (std::size_t i = 0; i < bands.size(); ++i) {
    bands_.emplace_back(bands[i], requests, std::move(classes[i]));
    for (std::size_t j = 0; j < i; ++j) bands_[i].share_service(bands_[j]);
  }
}

void Bands::change(const Gateway& from, const Gateway& to, const TenantChange& tenants, Time now) {
  max_queued_ = to.max_queued;
  const std::vector<Band> before = by_priority(from.bands);
  const std::vector<Band> after = by_priority(to.bands);
  for (std::size_t i = 0; i < bands_.size(); ++i) {
    bands_[i].change(before[i], after[i], tenants.to, tenants.are_weights_new, now);
  }
}

std::size_t Bands::size() const {
  std::size_t total = 0;
  for (const BandQueues& band : bands_) total += band.size();
  return total;
}

std::size_t Bands::length(TenantId tenant) const {
  std::size_t total = 0;
  for (const BandQueues& band : bands_) total += band.length(tenant);
  return total;
}

bool Bands::are_due() const {
  return std::any_of(bands_.begin(), bands_.end(),
                     [](const BandQueues& band) { return band.is_due(); });
}

std::optional<std::size_t> Bands::first_waiting() const {
  for (std::size_t i = 0; i < bands_.size(); ++i) {
    if (bands_[i].size() > 0) return i;
  }
  return std::nullopt;
}

void Bands::set_meter(ServiceMeter& meter) {
  for (BandQueues& band : bands_) band.set_meter(meter);
}

Bands::Room Bands::make_room(RequestId newcomer, Time now) {
  BandQueues& band = of(newcomer);
  if (band.is_full_for(TenantId{requests_.tenant(newcomer)})) {
    // This also frees a place in the band and in the gateway.
    const auto displaced = band.make_room(newcomer, now);
    return {displaced.has_value(), displaced};
  }
  if (band.is_full()) return {};
  if (!max_queued_ || size() < *max_queued_) return {.is_there = true, .displaced = {}};
  if (!sheds_) return {};
  const auto displaced = displace(requests_.class_of(newcomer).priority, now);
  return {displaced.has_value(), displaced};
}

std::optional<RequestId> Bands::displace(std::int64_t priority, Time now) {
  // The least important ones are in the lowest band.
  const auto lowest = std::find_if(bands_.rbegin(), bands_.rend(),
                                   [](const BandQueues& band) { return band.size() > 0; });
  if (lowest == bands_.rend()) return std::nullopt;
  return lowest->take_least(std::min<std::int64_t>(priority, 0), now);
}

Time Bands::next_timeout() {
  Time earliest = sim::kForever;
  for (BandQueues& band : bands_) earliest = std::min(earliest, band.next_timeout());
  return earliest;
}

std::optional<RequestId> Bands::take_expired(Time now) {
  for (BandQueues& band : bands_) {
    if (const auto expired = band.take_expired(now)) return expired;
  }
  return std::nullopt;
}

}  // namespace spillway::gateway
