#include "gateway/admission/tenant_token_bucket.h"

#include "gateway/admission/admission.h"
#include "gateway/admission/bucket.h"
#include "gateway/admission/names.h"
#include "sim/names.h"

namespace spillway::gateway {

namespace {

class TenantTokenBucketPolicy final : public AdmissionPolicy {
 public:
  TenantTokenBucketPolicy(const TenantTokenBucket& config, const Scope& scope)
      : reserves_(scope.slo_classes.size()) {
    std::vector<const TenantRate*> own(scope.tenants.size());
    const sim::NameIndex tenants(scope.tenants, &workload::Tenant::name);
    for (const TenantRate& rate : config.own) {
      const std::size_t tenant = tenants.of(rate.tenant);
      if (tenant < own.size()) own[tenant] = &rate;
    }
    double weights = 0;
    for (std::size_t i = 0; i < own.size(); ++i) weights += own[i] ? 0 : scope.tenants[i].weight;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const double share = own[i] ? 0 : scope.tenants[i].weight / weights;
      buckets_.push_back(
          own[i] ? Bucket(own[i]->capacity_tokens, own[i]->refill_tokens_per_s)
                 : Bucket(share * config.capacity_tokens, share * config.refill_tokens_per_s));
    }
    const sim::NameIndex slo_classes(scope.slo_classes, &workload::SloClass::name);
    for (const ClassReserve& reserve : config.reserves) {
      const std::size_t slo_class = slo_classes.of(reserve.slo_class);
      if (slo_class < reserves_.size()) reserves_[slo_class] = reserve.share;
    }
  }

  Verdict decide(const signals::RequestView& request, const signals::View&, sim::Time now,
                 sim::Draws&) override {
    Bucket& bucket = buckets_[request.tenant()];
    const double left = reserves_[request.slo_class()] * bucket.capacity();
    return bucket.tokens(now) >= request.input_tokens() + left ? Verdict::admit()
                                                               : Verdict::reject();
  }

  void commit(const signals::RequestView& request, sim::Time now) override {
    buckets_[request.tenant()].take(request.input_tokens(), now);
  }
  void change(const Admission& to, const Scope& scope, sim::Time now) override {
    const TenantTokenBucketPolicy changed(std::get<TenantTokenBucket>(to), scope);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      buckets_[i].change(changed.buckets_[i].capacity(), changed.buckets_[i].refill_per_s(), now);
    }
    reserves_ = changed.reserves_;
  }

 private:
  std::vector<Bucket> buckets_;   // by tenant
  std::vector<double> reserves_;  // by class, as a share
};

}  // namespace

void TenantTokenBucket::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  check_unique_names(own, &TenantRate::tenant, "tenant", sim::join_path(path, "own"), out);
  check_unique_names(reserves, &ClassReserve::slo_class, "slo_class",
                     sim::join_path(path, "reserves"), out);
}

std::unique_ptr<AdmissionPolicy> make(const TenantTokenBucket& config, const Scope& scope) {
  return std::make_unique<TenantTokenBucketPolicy>(config, scope);
}

}  // namespace spillway::gateway
