#include "router/deciders/conditional.h"

#include <algorithm>

#include "router/deciders/decider.h"

namespace spillway::router {

namespace {

class ConditionalDecider final : public Decider {
 public:
  explicit ConditionalDecider(const Conditional& config) : config_(config) {}
  bool is_local(const LegsQuestion& question) override {
    if (!question.decode || !bypasses(question, *question.decode)) return false;
    if (!config_.decode_busy_threshold) return true;
    if (!question.decode->num_kv_blocks) return false;
    const std::int64_t blocks = question.decode->blocks_in_flight + question.prompt_blocks;
    const auto total = static_cast<double>(*question.decode->num_kv_blocks);
    return static_cast<double>(blocks) <= *config_.decode_busy_threshold * total;
  }

 private:
  bool bypasses(const LegsQuestion& question, const LegsQuestion::Choice& decode) const {
    switch (config_.rule) {
      case BypassRule::isl_bounding:
        return is_short(question.prompt_tokens, decode);
      case BypassRule::prefill_load:
        return is_busy(question.prefill);
      case BypassRule::isl_or_load:
        return is_short(question.prompt_tokens, decode) || is_busy(question.prefill);
    }
    return false;
  }
  bool is_short(std::int64_t prompt_tokens, const LegsQuestion::Choice& decode) const {
    const std::int64_t uncached = std::max<std::int64_t>(prompt_tokens - decode.cached_tokens, 0);
    const auto prompt = static_cast<double>(std::max<std::int64_t>(prompt_tokens, 1));
    return uncached < config_.uncached_tokens_threshold &&
           static_cast<double>(uncached) / prompt < config_.uncached_share_threshold;
  }
  bool is_busy(const std::optional<LegsQuestion::Choice>& prefill) const {
    if (!prefill) return true;
    const auto budget = static_cast<double>(prefill->max_num_batched_tokens);
    const double threshold = config_.prefill_busy_threshold.value_or(0);  // set if it is read
    return static_cast<double>(prefill->pending_tokens) > threshold * budget;
  }

  Conditional config_;
};

}  // namespace

void Conditional::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (rule == BypassRule::isl_bounding || prefill_busy_threshold) return;
  out.push_back({sim::join_path(path, "prefill_busy_threshold"), "unset",
                 "must be set: the rule reads the load of the prefill pool"});
}

std::unique_ptr<Decider> make(const Conditional& config) {
  return std::make_unique<ConditionalDecider>(config);
}

}  // namespace spillway::router
