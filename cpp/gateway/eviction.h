#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "gateway/eviction_config.h"
#include "sim/ids.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Chooses requests in flight to evict, and when.
class Evictor final {
 public:
  explicit Evictor(const Eviction& config);

  bool is_on() const { return max_victims_ > 0; }
  void dispatched(sim::RequestId id, std::int64_t priority);
  /// The request has left the system, evicted or not.
  void ended(sim::RequestId id, sim::Time now);

  /// The saturation that keeps a band waiting.
  struct Pressure {
    double saturation = 0;
    double ceiling = 0;
    std::int64_t in_flight = 0;
    std::int64_t below = 0;  ///< only requests of lower priority may be evicted
  };
  /// Appends the victims to `victims`.
  void relieve(const Pressure& pressure, sim::Time now, std::vector<sim::RequestId>& victims);

 private:
  /// Ordered by eviction.
  struct Candidate {
    std::int64_t priority;
    std::int64_t serial;  // of dispatch, negative
    sim::RequestId id;

    bool operator<(const Candidate& other) const {
      if (priority != other.priority) return priority < other.priority;
      return serial < other.serial;
    }
  };
  enum class Standing : std::uint8_t { none, candidate, victim };
  struct Row {
    Standing standing = Standing::none;
    std::int64_t priority = 0;
    std::int64_t serial = 0;
  };

  std::int64_t max_victims_;
  sim::Time grace_;
  sim::Time timeout_;
  std::set<Candidate> candidates_;
  std::vector<Row> rows_;  // by request
  std::int64_t next_serial_ = 0;
  std::int64_t awaited_ = 0;  // victims that have not left
  sim::Time next_decision_{0};
};

}  // namespace spillway::gateway
