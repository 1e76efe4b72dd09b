#include "gateway/admission/token_bucket.h"

#include "gateway/admission/admission.h"
#include "gateway/admission/bucket.h"

namespace spillway::gateway {

namespace {

class TokenBucketPolicy final : public AdmissionPolicy {
 public:
  explicit TokenBucketPolicy(const TokenBucket& config)
      : bucket_(config.capacity_tokens, config.refill_tokens_per_s) {}

  Verdict decide(const signals::RequestView& request, const signals::View&, sim::Time now,
                 sim::Draws&) override {
    return bucket_.tokens(now) >= request.input_tokens() ? Verdict::admit() : Verdict::reject();
  }

  void commit(const signals::RequestView& request, sim::Time now) override {
    bucket_.take(request.input_tokens(), now);
  }
  void change(const Admission& to, const Scope&, sim::Time now) override {
    const auto& config = std::get<TokenBucket>(to);
    bucket_.change(config.capacity_tokens, config.refill_tokens_per_s, now);
  }

 private:
  Bucket bucket_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const TokenBucket& config) {
  return std::make_unique<TokenBucketPolicy>(config);
}

}  // namespace spillway::gateway
