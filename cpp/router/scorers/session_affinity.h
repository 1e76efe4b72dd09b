#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "router/scorers/weight.h"
#include "sim/schema/range.h"
#include "sim/time.h"

namespace spillway::router {

class Scorer;

/// The instance that took the last request of the session.
struct SessionAffinity {
  double weight = 1;
  std::int64_t session_segments = 1;
  std::optional<double> ttl_s;

  static constexpr std::string_view kind = "session_affinity", type_name = "SessionAffinity";
  static constexpr std::string_view doc =
      "1 for the instance that took the last request of the session, 0 for the others, and 0 for "
      "all if there is none (llm-d's session-affinity-scorer). Requests whose prompts begin with "
      "the same shared segments are a session.";
  static void fields(auto field) {
    add_weight<SessionAffinity>(field);
    field("session_segments", &SessionAffinity::session_segments,
          "Number of shared segments that make a session: 1, or 2 where sessions share a system "
          "prompt. A request with fewer is of no session.")
        .unit("segments")
        .range(sim::between(1, 1000));
    field("ttl_s", &SessionAffinity::ttl_s,
          "Time after the last request of a session at which its instance is forgotten; unset: "
          "never.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s))
        .log_search(1, 3600);
  }
};

std::unique_ptr<Scorer> make(const SessionAffinity& config);

}  // namespace spillway::router
