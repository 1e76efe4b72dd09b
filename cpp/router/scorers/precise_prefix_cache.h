#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "router/scorers/weight.h"
#include "sim/schema/enum.h"

namespace spillway::router {

class Scorer;

/// What the cached blocks of a prompt are related to.
enum class CacheScale : std::uint8_t { range, prompt };

/// The part of the prompt that is actually cached there.
struct PrecisePrefixCache {
  double weight = 1;
  CacheScale scale = CacheScale::range;

  static constexpr std::string_view kind = "precise_prefix_cache", type_name = "PrecisePrefixCache";
  static constexpr std::string_view doc =
      "Blocks of the prompt that are actually in the instance's KV memory. KV events reach the "
      "gateway without delay (llm-d's precise-prefix-cache-scorer).";
  static void fields(auto field) {
    add_weight<PrecisePrefixCache>(field);
    field("scale", &PrecisePrefixCache::scale,
          "What they are related to. range: their minimum and maximum over the instances, so that "
          "any difference counts fully; 1 for all if they are equal (llm-d up to 0.8); prompt: the "
          "full blocks of the prompt (llm-d since 0.9).");
  }
};

std::unique_ptr<Scorer> make(const PrecisePrefixCache& config);

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::CacheScale> {
  static constexpr std::array<std::string_view, 2> names{"range", "prompt"};
};
