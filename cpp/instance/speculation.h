#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::instance {

/// What proposes the drafts.
enum class DraftMethod : std::uint8_t { ngram, eagle, draft_model };

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::DraftMethod> {
  static constexpr std::array<std::string_view, 3> names{"ngram", "eagle", "draft_model"};
};

namespace spillway::instance {

/// Speculative decoding: tokens are proposed and verified together.
struct SpeculativeDecoding {
  std::int64_t num_drafts = 0;
  DraftMethod method = DraftMethod::ngram;
  std::vector<double> acceptance{0.7};
  double draft_us = 0;

  static constexpr std::string_view type_name = "SpeculativeDecoding";
  static constexpr std::string_view doc =
      "Speculative decoding: a step verifies drafts behind the last known token of each request "
      "that decodes, and delivers those that are accepted, and one more token, at one instant. In "
      "the step's duration drafts count as tokens of prompts. Such steps are performed singly.";
  static void fields(auto field) {
    using S = SpeculativeDecoding;
    field("num_drafts", &S::num_drafts,
          "Number of drafts of a request in a step (vLLM num_speculative_tokens); 0: none. Fewer "
          "if the step's budget or max_model_len leaves no room.")
        .unit("tokens")
        .range(sim::between(0, 64))
        .search(1, 8);
    field("method", &S::method,
          "What proposes the drafts. eagle (also MTP) and draft_model hold memory for num_drafts "
          "tokens more; draft_model takes slots of the step's budget (engine_rules.draft_slots); "
          "eagle changes which blocks can be found (engine_rules.eagle_blocks).");
    field("acceptance", &S::acceptance,
          "Probability that a draft is accepted if all before it are, by its position; the last "
          "value holds for all further positions. A trace may state the accepted drafts of each "
          "request instead.")
        .dimensionless()
        .range(sim::between(0, 1));
    field("draft_us", &S::draft_us,
          "Time that proposing drafts adds to every step that delivers tokens.")
        .unit("us")
        .range(sim::between(0, 1e9));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const {
    if (acceptance.empty()) {
      out.push_back({sim::join_path(path, "acceptance"), "[]", "must have at least one value"});
    }
  }
  bool draws() const {
    if (num_drafts == 0) return false;
    for (const double share : acceptance) {
      if (share > 0 && share < 1) return true;
    }
    return false;
  }
};

}  // namespace spillway::instance
