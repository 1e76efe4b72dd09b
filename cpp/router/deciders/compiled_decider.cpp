#include "router/deciders/compiled_decider.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/deciders/decider.h"
#include "signals/policy_records.h"

namespace spillway::router {

namespace {

class CompiledDeciderPolicy final : public Decider {
 public:
  explicit CompiledDeciderPolicy(const CompiledDecider& config)
      : config_(config),
        functions_(config.called("disaggregation.decider")),
        state_(config.state) {}

  bool is_local(const LegsQuestion& question) override {
    using Choice = LegsQuestion::Choice;
    const Choice decode = question.decode.value_or(Choice{});
    const Choice prefill = question.prefill.value_or(Choice{});
    const auto number = [](const std::optional<Choice>& choice) {
      return choice ? static_cast<std::int64_t>(choice->instance.index()) : -1;
    };
    const signals::LegsRecord legs{.prompt_tokens = question.prompt_tokens,
                                   .prompt_blocks = question.prompt_blocks,
                                   .decode_instance = number(question.decode),
                                   .decode_cached_tokens = decode.cached_tokens,
                                   .decode_pending_tokens = decode.pending_tokens,
                                   .decode_blocks_in_flight = decode.blocks_in_flight,
                                   .decode_max_num_batched_tokens = decode.max_num_batched_tokens,
                                   .decode_num_kv_blocks = decode.num_kv_blocks.value_or(0),
                                   .prefill_instance = number(question.prefill),
                                   .prefill_cached_tokens = prefill.cached_tokens,
                                   .prefill_pending_tokens = prefill.pending_tokens,
                                   .prefill_blocks_in_flight = prefill.blocks_in_flight,
                                   .prefill_max_num_batched_tokens = prefill.max_num_batched_tokens,
                                   .prefill_num_kv_blocks = prefill.num_kv_blocks.value_or(0)};
    signals::record(*question.request, attributes_, seen_);
    const double now_s = sim::to_seconds(question.now);
    const std::int32_t answer = functions_.is_local(&seen_, &legs, now_s, state_.data());
    if (answer == 0 || answer == 1) return answer == 1;
    throw sim::UsageError("the compiled policy '" + config_.name + "' returned " +
                          std::to_string(answer) + " for request " +
                          std::to_string(question.request->row()) + " at " + sim::to_text(now_s) +
                          " s: must be 1 (local) or 0 (remote)");
  }

 private:
  CompiledDecider config_;
  const DeciderFunctions& functions_;
  std::vector<double> state_;
  signals::RequestRecord seen_;                       // of the call
  std::vector<signals::AttributeRecord> attributes_;  // of the request of the call
};

}  // namespace

std::unique_ptr<Decider> make(const CompiledDecider& config) {
  return std::make_unique<CompiledDeciderPolicy>(config);
}

}  // namespace spillway::router
