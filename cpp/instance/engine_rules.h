#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/schema/enum.h"

namespace spillway::instance {

/// Which of several blocks with the same content is found.
enum class EqualBlocks : std::uint8_t { last, first };
/// Where blocks without a content that can be found join the free ones.
enum class FreeBlocks : std::uint8_t { oldest_first, blank_first };
/// What follows for a step when the request that needs memory is itself the one to be preempted.
enum class SelfPreemption : std::uint8_t { continues, ends_step };
/// Slots of a step's budget that a draft model takes: as many as there are seats, or as requests
/// get tokens.
enum class DraftSlots : std::uint8_t { all_seats, scheduled };
/// How EAGLE drafts change which blocks can be found.
enum class EagleBlocks : std::uint8_t { drop_last, next_token };

}  // namespace spillway::instance

template <>
struct spillway::sim::EnumNames<spillway::instance::EqualBlocks> {
  static constexpr std::array<std::string_view, 2> names{"last", "first"};
};
template <>
struct spillway::sim::EnumNames<spillway::instance::FreeBlocks> {
  static constexpr std::array<std::string_view, 2> names{"oldest_first", "blank_first"};
};
template <>
struct spillway::sim::EnumNames<spillway::instance::SelfPreemption> {
  static constexpr std::array<std::string_view, 2> names{"continues", "ends_step"};
};

template <>
struct spillway::sim::EnumNames<spillway::instance::DraftSlots> {
  static constexpr std::array<std::string_view, 2> names{"all_seats", "scheduled"};
};
template <>
struct spillway::sim::EnumNames<spillway::instance::EagleBlocks> {
  static constexpr std::array<std::string_view, 2> names{"drop_last", "next_token"};
};

namespace spillway::instance {

/// Rules of a scheduler and its block pool that differ between engines and their versions.
struct EngineRules {
  bool caps_lone_requests = true;
  SelfPreemption self_preemption = SelfPreemption::continues;
  bool keeps_share = false;
  bool first_equal_victim = false;
  bool skips_after_victim = false;
  bool counts_finishing_victims = false;
  bool aborts_before_tokens = false;
  EqualBlocks equal_blocks = EqualBlocks::last;
  FreeBlocks free_blocks = FreeBlocks::oldest_first;
  bool registers_when_known = false;
  bool null_block = false;
  bool lookahead_at_admission = false;
  DraftSlots draft_slots = DraftSlots::all_seats;
  bool registers_accepted = false;
  EagleBlocks eagle_blocks = EagleBlocks::drop_last;
  bool pads_drafts = false;

  bool operator==(const EngineRules&) const = default;
  /// Whether only a part of them differs that holds for every kind of step.
  bool are_general() const {
    EngineRules rest = *this;
    rest.caps_lone_requests = true;
    rest.null_block = false;
    rest.lookahead_at_admission = false;
    rest.draft_slots = DraftSlots::all_seats;
    rest.registers_accepted = false;
    rest.eagle_blocks = EagleBlocks::drop_last;
    rest.pads_drafts = false;
    return rest == EngineRules{};
  }

  static constexpr std::string_view type_name = "EngineRules";
  static constexpr std::string_view doc =
      "Rules of a scheduler and its KV blocks that differ between engines and their versions. "
      "Presets give those of vLLM: vllm-0.19 holds up to 0.22, vllm-0.23 up to 0.30, vllm-0.31 up "
      "to 0.32; the rules of drafts were recorded with 0.19 and 0.33 alone, and those of 0.19 are "
      "assumed in between. Most of them require completion: step_end, "
      "preemption: keep_emitted and allocation: check_then_act.";
  static void fields(auto field) {
    using R = EngineRules;
    field("caps_lone_requests", &R::caps_lone_requests,
          "Whether long_prefill_token_threshold also applies to a request without any other in "
          "batch and queue (vLLM up to 0.30).");
    field("self_preemption", &R::self_preemption,
          "If memory is short and the request that needs it is itself the one to be preempted, "
          "ends_step: the requests behind it get no tokens in this step (vLLM up to 0.32); "
          "continues: they do.");
    field("keeps_share", &R::keeps_share,
          "Whether a request for which others are preempted keeps its number of tokens, as in "
          "vLLM. Otherwise it may also use the tokens that its victims had in this step.");
    field(
        "first_equal_victim", &R::first_equal_victim,
        "With a victim of lowest_priority, of requests that are equally urgent and arrived at the "
        "same instant the one that entered the batch first is preempted, as in vLLM. Otherwise "
        "the last.");
    field("skips_after_victim", &R::skips_after_victim,
          "Whether the request behind the one for which an earlier request without tokens was "
          "preempted is passed over in this step (vLLM 0.19, with async_scheduling and a victim of "
          "lowest_priority).");
    field("counts_finishing_victims", &R::counts_finishing_victims,
          "Whether a request that is preempted in the step that emits its last token counts as "
          "waiting until that step ends, as in vLLM (async_scheduling only).");
    field("aborts_before_tokens", &R::aborts_before_tokens,
          "Whether a withdrawn request of the batch leaves before the tokens of the step that ends "
          "are delivered, and a planned batch keeps its tokens and its duration, as in vLLM. "
          "Otherwise it leaves after them.");
    field("equal_blocks", &R::equal_blocks,
          "Which of several blocks with the same content is found, last: the one that was filled "
          "last, only; first: the one that was filled first among those left, as in vLLM.");
    field("free_blocks", &R::free_blocks,
          "Order in which free blocks are taken. oldest_first: as they were released (vLLM up to "
          "0.22); blank_first: blocks without a content that can be found, such as partly filled "
          "ones, before all others, so that cached content lives longer.");
    field("registers_when_known", &R::registers_when_known,
          "Whether a block can be found only once all its tokens are delivered, as in vLLM. "
          "Otherwise already when they are scheduled, which differs for generated tokens with "
          "async_scheduling.");
    field("null_block", &R::null_block,
          "Whether the engine has a block that it never gives out, which num_kv_blocks excludes "
          "and the watermark includes, as in vLLM.");
    field("lookahead_at_admission", &R::lookahead_at_admission,
          "With drafts of eagle or draft_model: whether a request also gets the memory for them in "
          "the step in which it joins the batch (vLLM 0.33).");
    field("draft_slots", &R::draft_slots,
          "Tokens of a step's budget that a draft_model takes: one for each of max_num_seqs (vLLM "
          "0.19), or one for each request that gets tokens (vLLM 0.33).");
    field("registers_accepted", &R::registers_accepted,
          "Whether a block of accepted drafts can be found from the end of their step on (vLLM "
          "0.33). Otherwise once the next step is scheduled.");
    field("eagle_blocks", &R::eagle_blocks,
          "How drafts of eagle change which blocks can be found. drop_last: the last one found is "
          "computed again (vLLM 0.19); next_token: a block is found only by requests with the same "
          "token behind it, once that is known (vLLM 0.33).");
    field("pads_drafts", &R::pads_drafts,
          "Whether a request that joins the batch with one token to compute gets empty drafts, "
          "which are rejected, unless a prompt is in the step (vLLM 0.33).");
  }
  static const std::vector<std::pair<std::string_view, EngineRules>>& presets();
};

}  // namespace spillway::instance
