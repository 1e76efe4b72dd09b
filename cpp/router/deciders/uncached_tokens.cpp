#include "router/deciders/uncached_tokens.h"

#include "router/deciders/decider.h"

namespace spillway::router {

namespace {

class UncachedTokensDecider final : public Decider {
 public:
  explicit UncachedTokensDecider(const UncachedTokens& config) : config_(config) {}
  bool is_local(const LegsQuestion& question) const override {
    const std::int64_t least = config_.min_uncached_tokens;
    return least == 0 || question.input_tokens < config_.min_prompt_tokens ||
           question.input_tokens - question.cached_tokens < least;
  }

 private:
  UncachedTokens config_;
};

}  // namespace

std::unique_ptr<Decider> make(const UncachedTokens& config) {
  return std::make_unique<UncachedTokensDecider>(config);
}

}  // namespace spillway::router
