#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "workload/limits.h"

namespace spillway::workload {

/// The next tokens of a prompt, which other prompts may share.
struct PromptSegment {
  std::int64_t content = 1;
  std::int64_t tokens = 16;

  static constexpr std::string_view type_name = "PromptSegment";
  static constexpr std::string_view doc =
      "The next tokens of a prompt. Prompts that begin with the same segments share them in a "
      "prefix cache.";
  static void fields(auto field) {
    field("content", &PromptSegment::content,
          "Number of the content: equal numbers are equal tokens. Prompts of the workload have "
          "numbers of their own.")
        .dimensionless()
        .range(sim::between(1, kMaxContent));
    field("tokens", &PromptSegment::tokens, "Its length.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
  }

  static constexpr std::int64_t kMaxContent = std::int64_t{1} << 52;
};

/// A request from outside the workload.
struct Submission {
  std::string tenant = "default";
  std::string slo_class = "standard";
  std::int64_t input_tokens = 512;
  std::int64_t output_tokens = 128;
  std::optional<std::int64_t> max_tokens;
  std::string model;
  std::vector<PromptSegment> segments;
  std::optional<std::int64_t> instance;
  bool prefill_only = false;

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
    field("max_tokens", &Submission::max_tokens,
          "Maximum of its output that its client states; at least output_tokens; unset: none.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
    field("model", &Submission::model,
          "Model that it names: one of instances[].models. Empty: that of its tenant, if any.");
    field("segments", &Submission::segments,
          "What its prompt begins with; the rest is shared with no other prompt.");
    field("instance", &Submission::instance,
          "The only instance that the router may choose, by position in the fleet; it is rejected "
          "where that is not ready. With prefill and decode pools that instance serves the whole "
          "request, whatever its role. Unset: any.")
        .dimensionless()
        .range(sim::at_least(0));
    field("prefill_only", &Submission::prefill_only,
          "Whether `instance` only computes the prompt and holds it until a change hands the "
          "request off to its decode instance (hand_off). It requires prefill and decode pools.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

/// Where a request goes on whose prompt an instance has computed and holds.
struct HandOff {
  std::int64_t request = 0;
  std::int64_t instance = 0;
  std::int64_t output_tokens = 128;
  std::optional<std::int64_t> max_tokens;

  static constexpr std::string_view type_name = "HandOff";
  static constexpr std::string_view doc =
      "Where a request with `prefill_only` goes on, as a router in front of the servers decides: "
      "its decode leg is sent to an instance, which reads the prompt over the link of "
      "disaggregation. Until then its lengths are those of its submission.";
  static void fields(auto field) {
    field("request", &HandOff::request,
          "Its position among all requests that this list of changes submits, from 0. If its "
          "prompt has not been computed yet, it goes on when that is done; if it has ended, "
          "nothing happens.")
        .dimensionless()
        .range(sim::at_least(0));
    field("instance", &HandOff::instance,
          "The instance of its decode leg, by position in the fleet; where that is not ready, it "
          "is rejected.")
        .dimensionless()
        .range(sim::at_least(0));
    field("output_tokens", &HandOff::output_tokens, "Length of its output.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
    field("max_tokens", &HandOff::max_tokens,
          "Maximum of its output that its client states; at least output_tokens; unset: none.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

}  // namespace spillway::workload
