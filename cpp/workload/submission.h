#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/schema/range.h"
#include "workload/limits.h"

namespace spillway::workload {

/// A request from outside the workload.
struct Submission {
  std::string tenant = "default";
  std::string slo_class = "standard";
  std::int64_t input_tokens = 512;
  std::int64_t output_tokens = 128;

  static constexpr std::string_view type_name = "Submission";
  static constexpr std::string_view doc =
      "A request from outside the workload. To gateway, fleet and figures it is a request like any "
      "other; its client reacts as the tenant's clients do.";
  static void fields(auto field) {
    field("tenant", &Submission::tenant,
          "Its tenant, which the simulation or its workload must name.");
    field("slo_class", &Submission::slo_class,
          "Its class, which the simulation or its workload must name.");
    field("input_tokens", &Submission::input_tokens, "Length of its prompt.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
    field("output_tokens", &Submission::output_tokens, "Length of its output.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
};

}  // namespace spillway::workload
