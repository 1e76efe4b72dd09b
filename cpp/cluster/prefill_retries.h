#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "router/disaggregation.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::cluster {

/// The requests that wait until their prefill legs are sent to the same instances again. A pure
/// state: its owner asks it when a wait is over. All waits are equally long, so the first that
/// began is the first that is over.
class PrefillRetries {
 public:
  /// Of events by which a wait is over: behind the legs that reach instances at that instant.
  static constexpr std::uint32_t kTie = 0xFFFFFFFF;

  explicit PrefillRetries(const router::Disaggregation& pools)
      : limit_(pools.prefill_max_retries), wait_(sim::from_seconds(pools.prefill_retry_after_s)) {}

  bool is_on() const { return limit_ > 0; }
  bool allows_another(std::int64_t retries) const { return retries < limit_; }
  /// The request waits from now on. Returns for how long.
  sim::Time begin(sim::RequestId id) {
    waiting_.emplace_back(id);
    return wait_;
  }
  /// The first wait is over. Unset: its request has been withdrawn.
  std::optional<sim::RequestId> take() {
    const std::optional<sim::RequestId> id = waiting_.front();
    waiting_.pop_front();
    return id;
  }
  /// Precondition: the request waits.
  void withdraw(sim::RequestId id) { std::ranges::find(waiting_, std::optional(id))->reset(); }
  /// Whether a wait is to be over.
  bool is_pending() const { return !waiting_.empty(); }

 private:
  std::int64_t limit_;
  sim::Time wait_;
  std::deque<std::optional<sim::RequestId>> waiting_;
};

}  // namespace spillway::cluster
