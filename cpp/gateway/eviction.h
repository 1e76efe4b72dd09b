#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "sim/ids.h"
#include "sim/schema/field.h"
#include "sim/time.h"

namespace spillway::gateway {

/// Sheddable requests in flight give way to more important ones that wait for a saturated fleet.
struct Eviction {
  std::int64_t max_victims = 0;
  double grace_s = 0.5;
  double timeout_s = 10;

  static constexpr std::string_view type_name = "Eviction";
  static constexpr std::string_view doc =
      "Takes sheddable requests (priority < 0) out of the instances where saturation keeps a band "
      "waiting that lies above theirs (flow control of llm-d's endpoint picker): the least "
      "important first, of equals the one dispatched last. With saturation s, the ceiling c of the "
      "band and n requests in flight, one is reckoned to bring s / n: as many are taken as bring "
      "s − c, at least one.";
  static void fields(auto field) {
    field("max_victims", &Eviction::max_victims,
          "Most requests taken by one decision (llm-d: 2); 0: what is in flight stays.")
        .unit("requests")
        .range(sim::between(0, 1e9));
    field("grace_s", &Eviction::grace_s,
          "Time from when the last of a decision's victims has left until the next decision.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s))
        .search(0, 5);
    field("timeout_s", &Eviction::timeout_s,
          "Time after a decision from which the next one does not wait for its victims.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
  }
};

/// Knows who may be evicted, and when it is time to.
class Evictor {
 public:
  explicit Evictor(const Eviction& config);

  bool is_on() const { return max_victims_ > 0; }
  void dispatched(sim::RequestId id, std::int64_t priority);
  /// It has left the system, evicted or not.
  void ended(sim::RequestId id, sim::Time now);

  /// What keeps a band waiting.
  struct Pressure {
    double saturation = 0;
    double ceiling = 0;
    std::int64_t in_flight = 0;
    std::int64_t below = 0;  ///< only less important requests may be taken
  };
  /// Takes victims: they go to the end of `victims`.
  void relieve(const Pressure& pressure, sim::Time now, std::vector<sim::RequestId>& victims);

 private:
  /// In order of their turn.
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
