#include "router/deciders/uncached_tokens.h"

#include "router/deciders/decider.h"

namespace spillway::router {

namespace {

class UncachedTokensDecider final : public Decider {
 public:
  explicit UncachedTokensDecider(const UncachedTokens& config) : config_(config) {}
  bool is_local(const LegsQuestion& question) override {
    const std::int64_t least = config_.min_uncached_tokens;
    const std::int64_t cached = question.decode ? question.decode->cached_tokens : 0;
    return least == 0 || question.prompt_tokens < config_.min_prompt_tokens ||
           question.prompt_tokens - cached < least;
  }

 private:
  UncachedTokens config_;
};

}  // namespace

std::unique_ptr<Decider> make(const UncachedTokens& config) {
  return std::make_unique<UncachedTokensDecider>(config);
}

}  // namespace spillway::router
