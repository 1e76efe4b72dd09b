#include "gateway/admission_chain.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "gateway/config.h"
#include "sim/schema/codec.h"

namespace spillway::gateway {

namespace {

// Passes `scope` to policies that take one.
std::unique_ptr<AdmissionPolicy> make_admission(const Admission& admission, const Scope& scope) {
  return std::visit(
      [&](const auto& config) {
        if constexpr (requires { make(config, scope); }) {
          return make(config, scope);
        } else {
          return make(config);
        }
      },
      admission);
}

}  // namespace

AdmissionChain::AdmissionChain(std::vector<Link> links) : links_(std::move(links)) {
  for (const Link& link : links_) {
    if (link.observes) observers_.push_back(link.policy.get());
  }
}

void AdmissionChain::change(std::span<const Admission> from, std::span<const Admission> to,
                            const Scope& scope, bool are_tenants_new, sim::Time now) {
  for (const Link& link : links_) {
    const Admission& wanted = to[link.position];
    const bool shares = std::holds_alternative<TenantTokenBucket>(wanted) && are_tenants_new;
    if (shares || sim::differ(from[link.position], wanted)) {
      link.policy->change(wanted, scope, now);
    }
  }
}

AdmissionChain make_chain(std::span<const Admission> policies, const Scope& scope) {
  std::vector<AdmissionChain::Link> links;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const Admission& policy = policies[i];
    if (std::holds_alternative<AlwaysAdmit>(policy)) continue;
    links.push_back({make_admission(policy, scope),
                     workload::first_reason(std::type_identity<Admission>{}, policy.index()),
                     observes(policy), i});
  }
  return AdmissionChain(std::move(links));
}

}  // namespace spillway::gateway
