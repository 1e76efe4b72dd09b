#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::fleet {

/// What becomes of a request whose instance fails.
struct Migration {
  std::int64_t limit = 0;
  std::optional<std::int64_t> max_seq_len_tokens;
  bool answered = true;

  static constexpr std::string_view type_name = "Migration";
  static constexpr std::string_view doc =
      "Requests that would fail as instance_lost go on at another ready instance, after the "
      "request "
      "migration of NVIDIA Dynamo: the same attempt, with its permit, prefills its prompt and the "
      "tokens that it has emitted again, and emits only the rest. It fails if no other instance is "
      "ready, or if its client no longer waits.";
  static void fields(auto field) {
    field("limit", &Migration::limit,
          "How often a request is sent on (--migration-limit); 0: it fails with its instance.")
        .unit("migrations")
        .range(sim::between(0, 1000))
        .search(0, 3);
    field("max_seq_len_tokens", &Migration::max_seq_len_tokens,
          "Prompt and emitted tokens above which it is not sent on (--migration-max-seq-len); "
          "unset: it always is.")
        .unit("tokens")
        .range(sim::between(1, 1e9));
    field("answered", &Migration::answered,
          "Whether requests that have emitted tokens are sent on, too; false: only before their "
          "first token, as a gateway that retries does.");
  }
  bool is_on() const { return limit > 0; }
};

}  // namespace spillway::fleet
