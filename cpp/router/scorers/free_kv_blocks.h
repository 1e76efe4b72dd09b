#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

namespace spillway::router {

class Scorer;

/// The most free KV blocks.
struct FreeKvBlocks {
  double weight = 1;

  static constexpr std::string_view kind = "free_kv_blocks", type_name = "FreeKvBlocks";
  static constexpr std::string_view doc =
      "1 for the most free KV blocks, 0 for the fewest, as the instances report them.";
  static void fields(auto field) { add_weight<FreeKvBlocks>(field); }
};

std::unique_ptr<Scorer> make(const FreeKvBlocks& config);

}  // namespace spillway::router
