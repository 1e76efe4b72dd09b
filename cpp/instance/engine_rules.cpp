#include "instance/engine_rules.h"

namespace spillway::instance {

const std::vector<std::pair<std::string_view, EngineRules>>& EngineRules::presets() {
  static const auto table = [] {
    EngineRules rules{.self_preemption = SelfPreemption::ends_step,
                      .keeps_share = true,
                      .first_equal_victim = true,
                      .skips_after_victim = true,
                      .counts_finishing_victims = true,
                      .aborts_before_tokens = true,
                      .equal_blocks = EqualBlocks::first,
                      .registers_when_known = true,
                      .null_block = true};
    std::vector<std::pair<std::string_view, EngineRules>> versions{{"vllm-0.19", rules}};
    rules.free_blocks = FreeBlocks::blank_first;
    versions.emplace_back("vllm-0.23", rules);
    rules.caps_lone_requests = false;
    versions.emplace_back("vllm-0.31", rules);
    rules.self_preemption = SelfPreemption::continues;
    rules.skips_after_victim = false;
    rules.lookahead_at_admission = true;
    rules.draft_slots = DraftSlots::scheduled;
    rules.registers_accepted = true;
    rules.eagle_blocks = EagleBlocks::next_token;
    rules.pads_drafts = true;
    versions.emplace_back("vllm-0.33", rules);
    return versions;
  }();
  return table;
}

}  // namespace spillway::instance
