#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/schema/range.h"

namespace spillway::signals {

/// The gateway's own record of which prompts went where.
struct PrefixIndexConfig {
  std::optional<std::int64_t> capacity_blocks;
  std::int64_t block_size_tokens = 16;

  static constexpr std::string_view type_name = "PrefixIndex";
  static constexpr std::string_view doc =
      "The gateway's own record of the prompts that it sent: for each rank of an instance, the "
      "blocks last sent there. The contents of the instances' caches are not known to it.";
  static void fields(auto field) {
    field(
        "capacity_blocks", &PrefixIndexConfig::capacity_blocks,
        "Blocks remembered per rank of an instance; the least recently sent are forgotten first. "
        "Unset: as many as fill the largest KV memory of a rank (num_kv_blocks), in blocks of the "
        "index's own size.")
        .unit("blocks")
        .range(sim::between(1, 1e9))
        .log_search(1000, 100000);
    field("block_size_tokens", &PrefixIndexConfig::block_size_tokens,
          "Tokens per block; prompts are compared block by block.")
        .unit("tokens")
        .range(sim::between(1, 1e6));
  }
};

}  // namespace spillway::signals
