#include "instance/group.h"

#include <cmath>
#include <cstddef>

namespace spillway::instance {

namespace {

constexpr double kTolerance = 1e-9;

// No corner turns right. An empty list is convex.
bool is_convex(const std::vector<BatchState>& corners) {
  const std::size_t n = corners.size();
  if (n == 1 || n == 2) return false;
  for (std::size_t i = 0; i < n; ++i) {
    const BatchState& a = corners[i];
    const BatchState& b = corners[(i + 1) % n];
    const BatchState& c = corners[(i + 2) % n];
    const double left = (b.running_requests - a.running_requests) * (c.kv_tokens - a.kv_tokens);
    const double right = (b.kv_tokens - a.kv_tokens) * (c.running_requests - a.running_requests);
    if (left - right < -kTolerance * (std::abs(left) + std::abs(right))) return false;
  }
  return true;
}

}  // namespace

void InstanceGroup::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (max_model_len == 1) {
    out.push_back(
        {sim::join_path(path, "max_model_len"), "1", "must be 0 (unlimited) or >= 2 (tokens)"});
  }
  if (!is_convex(fitted_states)) {
    out.push_back({sim::join_path(path, "fitted_states"),
                   std::to_string(fitted_states.size()) + " corners",
                   "must be empty, or the corners of a convex polygon, counterclockwise"});
  }
  if (lockstep_ranks && !std::holds_alternative<StepLoop>(plant)) {
    out.push_back({sim::join_path(path, "lockstep_ranks"), "true",
                   "must be false without plant: step_loop, as no other plant has steps"});
  }
  if (std::holds_alternative<DualLimitGate>(ingress) && completion != Completion::step_end) {
    out.push_back({sim::join_path(path, "completion"), "step_start",
                   "must be step_end with a dual_limit_gate, which waits for first tokens"});
  }
  if (!std::holds_alternative<StepLoop>(plant)) return;  // other plants ignore the rest
  const auto needs = [&](bool holds, std::string_view field, std::string_view value,
                         std::string_view needed) {
    if (!async_scheduling || holds) return;
    out.push_back({sim::join_path(path, field), std::string(value),
                   "must be " + std::string(needed) + " with async_scheduling"});
  };
  needs(completion == Completion::step_end, "completion", "step_start", "step_end");
  needs(preemption == Preemption::keep_emitted, "preemption", "restart", "keep_emitted");
  needs(kv_cache.allocation == Allocation::check_then_act, "kv_cache.allocation", "roll_back",
        "check_then_act");
  const auto rules_need = [&](bool holds, std::string_view field, std::string_view value,
                              std::string_view needed) {
    if (engine_rules.are_general() || holds) return;
    out.push_back({sim::join_path(path, field), std::string(value),
                   "must be " + std::string(needed) + " with these engine_rules"});
  };
  rules_need(completion == Completion::step_end, "completion", "step_start", "step_end");
  rules_need(preemption == Preemption::keep_emitted, "preemption", "restart", "keep_emitted");
  rules_need(kv_cache.allocation == Allocation::check_then_act, "kv_cache.allocation", "roll_back",
             "check_then_act");
  if (kv_cache.generated_tokens && kv_cache.allocation == Allocation::roll_back) {
    out.push_back({sim::join_path(path, "kv_cache.allocation"), "roll_back",
                   "must be check_then_act with generated_tokens"});
  }
  if (kv_cache.generated_tokens && preemption == Preemption::restart) {
    out.push_back({sim::join_path(path, "preemption"), "restart",
                   "must be keep_emitted with generated_tokens"});
  }
  if (speculative_decoding.num_drafts > 0) {
    const auto drafts_need = [&](bool holds, std::string_view field, std::string_view value,
                                 std::string_view needed) {
      if (holds) return;
      out.push_back({sim::join_path(path, field), std::string(value),
                     "must be " + std::string(needed) + " with speculative_decoding"});
    };
    drafts_need(completion == Completion::step_end, "completion", "step_start", "step_end");
    drafts_need(preemption == Preemption::keep_emitted, "preemption", "restart", "keep_emitted");
    drafts_need(kv_cache.allocation == Allocation::check_then_act, "kv_cache.allocation",
                "roll_back", "check_then_act");
    drafts_need(!kv_cache.stores_last_token, "kv_cache.stores_last_token", "true", "false");
    const std::int64_t taken = speculative_decoding.method != DraftMethod::draft_model ? 0
                               : engine_rules.draft_slots == DraftSlots::all_seats ? max_num_seqs
                                                                                   : 1;
    drafts_need(max_num_batched_tokens > taken, "max_num_batched_tokens",
                std::to_string(max_num_batched_tokens),
                "above the " + std::to_string(taken) + " slots of the draft model");
  }
  if (kv_cache.allocation == Allocation::roll_back &&
      (kv_cache.reserve_full_prompt || kv_cache.watermark > 0)) {
    out.push_back({sim::join_path(path, "kv_cache.allocation"), "roll_back",
                   "must be check_then_act with reserve_full_prompt or a watermark"});
  }
}

}  // namespace spillway::instance
