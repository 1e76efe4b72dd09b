#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/filters/if_none.h"
#include "sim/error.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// The prompts that some instances serve.
struct ContextRange {
  std::int64_t first_instance = 0;
  std::int64_t num_instances = 1;
  std::int64_t min_tokens = 0;
  std::optional<std::int64_t> max_tokens;

  static constexpr std::string_view type_name = "ContextRange";
  static constexpr std::string_view doc = "Lengths of the prompts that some instances serve.";
  static void fields(auto field) {
    field("first_instance", &ContextRange::first_instance,
          "The first of the instances, by position in the fleet, from 0.")
        .dimensionless()
        .range(sim::between(0, 1e6));
    field("num_instances", &ContextRange::num_instances, "How many instances from there on.")
        .unit("instances")
        .range(sim::between(1, 1e6));
    field("min_tokens", &ContextRange::min_tokens, "The shortest prompt.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
    field("max_tokens", &ContextRange::max_tokens, "The longest prompt; unset: of any length.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// Removes instances that are for shorter or longer prompts.
struct ContextLength {
  std::vector<ContextRange> ranges;
  IfNone if_none = IfNone::keep_all;

  static constexpr std::string_view kind = "context_length", type_name = "ContextLength";
  static constexpr std::string_view doc =
      "Keeps the instances whose ranges contain the length of the prompt, and those without a "
      "range (llm-d's context-length-aware plugin, whose ranges are labels of the servers).";
  static void fields(auto field) {
    field("ranges", &ContextLength::ranges,
          "Ranges of instances. An instance in several ranges serves the prompts of each.");
    field("if_none", &ContextLength::if_none, kIfNoneDoc);
  }
};

std::unique_ptr<Filter> make(const ContextLength& config);

}  // namespace spillway::router
