#include "gateway/admission/token_bucket.h"

#include <algorithm>

namespace spillway::gateway {

namespace {

class TokenBucketPolicy final : public AdmissionPolicy {
 public:
  explicit TokenBucketPolicy(const TokenBucket& config)
      : capacity_(config.capacity_tokens),
        refill_per_s_(config.refill_tokens_per_s),
        tokens_(config.capacity_tokens) {}

  Verdict decide(const signals::RequestView& request, const signals::View&, sim::Time now,
                 sim::Draws&) override {
    refill(now);
    return tokens_ >= request.input_tokens() ? Verdict::admit() : Verdict::reject();
  }

  void commit(const signals::RequestView& request, sim::Time now) override {
    refill(now);
    tokens_ -= request.input_tokens();
  }

 private:
  // In microseconds, multiplied before it is divided: the rounding of the published policy.
  void refill(sim::Time now) {
    if (now <= last_refill_) return;
    const double elapsed_us = static_cast<double>((now - last_refill_).ns) / 1000.0;
    tokens_ = std::min(capacity_, tokens_ + elapsed_us * refill_per_s_ / 1e6);
    last_refill_ = now;
  }

  double capacity_;
  double refill_per_s_;
  double tokens_;
  sim::Time last_refill_{0};
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const TokenBucket& config) {
  return std::make_unique<TokenBucketPolicy>(config);
}

}  // namespace spillway::gateway
