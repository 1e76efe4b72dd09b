#pragma once

#include <compare>
#include <cstdint>
#include <iterator>
#include <vector>

#include "router/disaggregation.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// The transfers of a link: those under way and those that wait. A pure state: its owner asks it
/// when something is due.
class Link {
 public:
  struct Pair {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    auto operator<=>(const Pair&) const = default;
  };

  explicit Link(const router::KvLink& config);

  /// A transfer joins those that wait, and starts if it may.
  void begin(sim::RequestId id, Pair pair, double bytes, sim::Time now);
  /// The transfer ends early. Precondition: `begin`, and not ended.
  void drop(sim::RequestId id, sim::Time now);
  /// When a transfer ends, or starts to move bytes; kForever: never.
  sim::Time next() const;
  /// Number of transfers, with those that wait.
  std::int64_t transfers() const { return std::ssize(waiting_) + std::ssize(active_); }
  /// Takes out those that end now, in the order in which they started.
  std::vector<sim::RequestId> take_ended(sim::Time now);

 private:
  struct Transfer {
    sim::RequestId id;
    Pair pair;
    double left_bytes = 0;
    sim::Time begun = sim::kUnset;
    double bytes_per_ns = 0;        // while it moves
    sim::Time end = sim::kForever;  // unless it changes; kForever: it does not move yet
    bool moves = false;             // of max_min: its base latency is over
  };

  void advance(sim::Time now);
  void start_waiting(sim::Time now);
  void share_fairly(sim::Time now);

  double pair_bytes_per_ns_;
  double shared_bytes_per_ns_;
  router::LinkSharing sharing_;
  sim::Time latency_;
  std::int64_t max_transfers_;
  std::vector<Transfer> waiting_;
  std::vector<Transfer> active_;
  sim::Time since_{0};
};

}  // namespace spillway::cluster
