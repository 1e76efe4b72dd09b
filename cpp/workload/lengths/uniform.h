#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "workload/lengths/bounds.h"
#include "workload/limits.h"

namespace spillway::workload {

class LengthDistribution;

/// Equally likely whole numbers in [min, max].
struct Uniform {
  std::int64_t min_tokens = 1;
  std::int64_t max_tokens = 1024;

  static constexpr std::string_view kind = "uniform", type_name = "Uniform";
  static constexpr std::string_view doc =
      "Equally likely lengths from min_tokens to max_tokens. `vllm bench serve --random-input-len "
      "n "
      "--random-range-ratio r` draws from [n·(1 − r), n·(1 + r)]; InferenceX, with its own r, from "
      "[r·n, n].";
  static void fields(auto field) {
    field("min_tokens", &Uniform::min_tokens, "Shortest length.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
    field("max_tokens", &Uniform::max_tokens, "Longest length.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
  bool draws() const { return min_tokens < max_tokens; }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const {
    check_bounds(min_tokens, max_tokens, path, out);
  }
};

std::unique_ptr<LengthDistribution> make(const Uniform& config);

}  // namespace spillway::workload
