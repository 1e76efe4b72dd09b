#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gateway/band_queues.h"
#include "gateway/config.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::gateway {

/// The configured bands, the highest priority first.
std::vector<Band> by_priority(std::vector<Band> bands);

/// The tenants of a run with new settings.
struct TenantChange {
  std::span<const workload::Tenant> to;
  bool are_new = false;          ///< any setting
  bool are_weights_new = false;  ///< any weight
};

/// The bands of a gateway, the highest priority first, and their shared capacity.
class Bands final {
 public:
  Bands(const Gateway& config, const workload::RequestTable& requests);

  /// Settings or tenants have changed. `from`: those in force before.
  void change(const Gateway& from, const Gateway& to, const TenantChange& tenants, sim::Time now);

  /// Whether any instance is ready.
  void set_servers(bool has_servers, sim::Time now) {
    for (BandQueues& band : bands_) band.set_servers(has_servers, now);
  }

  std::size_t count() const { return bands_.size(); }
  BandQueues& operator[](std::size_t i) { return bands_[i]; }
  const BandQueues& operator[](std::size_t i) const { return bands_[i]; }
  /// The band of the request: the highest one whose priority its class reaches, otherwise the
  /// lowest.
  BandQueues& of(sim::RequestId id) { return bands_[band_of_class_[requests_.slo_class(id)]]; }

  /// Number of waiting requests.
  std::size_t size() const;
  std::size_t length(sim::TenantId tenant) const;
  /// Whether a drain may have an effect.
  bool are_due() const;
  /// The highest band with waiting requests; unset: none.
  std::optional<std::size_t> first_waiting() const;
  void set_meter(ServiceMeter& meter);

  /// Whether a request may join its band, and the request that it displaces.
  struct Room {
    bool is_there = false;
    std::optional<sim::RequestId> displaced;
  };
  Room make_room(sim::RequestId newcomer, sim::Time now);
  /// Time of the next time-out; kForever: none.
  sim::Time next_timeout();
  /// Removes a request that has timed out, from the highest band first.
  std::optional<sim::RequestId> take_expired(sim::Time now);

 private:
  std::optional<sim::RequestId> displace(std::int64_t priority, sim::Time now);

  const workload::RequestTable& requests_;
  std::vector<BandQueues> bands_;
  std::vector<std::size_t> band_of_class_;
  std::optional<std::size_t> max_queued_;
  bool sheds_;
};

}  // namespace spillway::gateway
