#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::instance {

/// How blocks are allocated to a waiting request.
enum class Allocation : std::uint8_t { check_then_act, roll_back };

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::Allocation> {
  static constexpr std::array<std::string_view, 2> names{"check_then_act", "roll_back"};
};

namespace spillway::instance {

/// Allocation and reuse of KV blocks.
struct KvCache {
  bool prefix_caching = true;
  Allocation allocation = Allocation::check_then_act;
  bool stores_last_token = false;
  bool reserve_full_prompt = true;
  double watermark = 0;
  bool generated_tokens = false;

  static constexpr std::string_view type_name = "KvCache";
  static constexpr std::string_view doc =
      "Allocation of KV blocks, and their reuse by prompts with a common prefix.";
  static void fields(auto field) {
    field("prefix_caching", &KvCache::prefix_caching,
          "Whether full blocks are kept until their memory is needed, and reused by requests that "
          "begin with the same tokens (vLLM --enable-prefix-caching).");
    field("allocation", &KvCache::allocation,
          "check_then_act: cached blocks that are about to be reused do not count as free, and at "
          "least one token of a prompt is recomputed; roll_back: they count as free, so an "
          "allocation can fail midway and is rolled back.");
    field("stores_last_token", &KvCache::stores_last_token,
          "Whether a request takes memory for its last token, which is never read, before it "
          "leaves.");
    field("reserve_full_prompt", &KvCache::reserve_full_prompt,
          "Whether a waiting request joins the batch only if there is memory for its whole prompt, "
          "not just for its first chunk (vLLM's default since 0.19). Fewer requests are then "
          "preempted when memory is short.");
    field("watermark", &KvCache::watermark,
          "Share of the blocks that must stay free when a waiting request joins a batch with other "
          "requests: room for these to grow.")
        .dimensionless()
        .range(sim::between(0, 0.9))
        .search(0, 0.2);
    field("generated_tokens", &KvCache::generated_tokens,
          "Whether blocks with generated tokens can be found, too, so that the next turn of a "
          "conversation reuses the answer before it, as in vLLM; false: for chat templates that "
          "change what was generated, e.g. drop the reasoning.");
  }
};

}  // namespace spillway::instance
