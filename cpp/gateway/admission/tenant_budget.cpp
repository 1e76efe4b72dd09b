#include "gateway/admission/tenant_budget.h"

#include "gateway/admission/admission.h"
#include "gateway/admission/names.h"
#include "gateway/admission/per_request.h"
#include "sim/names.h"

namespace spillway::gateway {

namespace {

class TenantBudgetPolicy final : public AdmissionPolicy {
 public:
  TenantBudgetPolicy(const TenantBudget& config, const Scope& scope)
      : shares_(scope.tenants.size(), config.default_share), in_flight_(scope.tenants.size()) {
    const sim::NameIndex tenants(scope.tenants, &workload::Tenant::name);
    for (const TenantShare& budget : config.budgets) {
      const std::size_t tenant = tenants.of(budget.tenant);
      if (tenant < shares_.size()) shares_[tenant] = budget.share;
    }
  }

  void change(const Admission& to, const Scope& scope, sim::Time) override {
    shares_ = TenantBudgetPolicy(std::get<TenantBudget>(to), scope).shares_;
  }

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time now,
                 sim::Draws&) override {
    const std::optional<double> share = shares_[request.tenant()];
    if (request.priority() >= 0 || !share) return Verdict::admit();
    count_dispatched(now);
    std::int64_t seats = 0;
    for (std::size_t i = 0; i < view.size(); ++i) seats += view.capacity(i).max_num_seqs;
    const bool exceeds =
        static_cast<double>(in_flight_[request.tenant()]) > *share * static_cast<double>(seats);
    return exceeds ? Verdict::reject() : Verdict::admit();
  }

  void commit(const signals::RequestView& request, sim::Time) override {
    is_dispatched_[request.id()] = false;
  }
  void dispatched(const signals::RequestView& request, sim::Time now) override {
    count_dispatched(now);
    latest_.push_back(request.tenant());
    latest_at_ = now;
    is_dispatched_[request.id()] = true;
  }
  void finished(const signals::RequestView& request, workload::Outcome, sim::Time now) override {
    count_dispatched(now);
    if (is_dispatched_[request.id()]) --in_flight_[request.tenant()];
  }

 private:
  // The published policy counts requests when they are routed, after all decisions of the instant.
  void count_dispatched(sim::Time now) {
    if (now <= latest_at_) return;
    for (const std::uint16_t tenant : latest_) ++in_flight_[tenant];
    latest_.clear();
  }

  std::vector<std::optional<double>> shares_;
  std::vector<std::int64_t> in_flight_;
  std::vector<std::uint16_t> latest_;  // tenants of the requests dispatched at the latest instant
  sim::Time latest_at_ = sim::kUnset;
  PerRequest<char> is_dispatched_;
};

}  // namespace

void TenantBudget::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  check_unique_names(budgets, &TenantShare::tenant, "tenant", sim::join_path(path, "budgets"), out);
}

std::unique_ptr<AdmissionPolicy> make(const TenantBudget& config, const Scope& scope) {
  return std::make_unique<TenantBudgetPolicy>(config, scope);
}

}  // namespace spillway::gateway
