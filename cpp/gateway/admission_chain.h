#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/admission/policies.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/rng.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

/// The admission policies in order: the first rejection wins. Policies that observe are notified of
/// the further life of admitted requests.
class AdmissionChain final {
 public:
  struct Link {
    std::unique_ptr<AdmissionPolicy> policy;
    std::size_t first_reason = 0;  ///< position of its first reason in the list of all reasons
    bool observes = false;
    std::size_t position = 0;  ///< in the configured chain
  };
  explicit AdmissionChain(std::vector<Link> links);

  /// Whether it admits every request.
  bool is_empty() const { return links_.empty(); }
  /// The reason of the first rejection, as its position in the list of all reasons; unset: all
  /// policies admit the request.
  std::optional<std::size_t> decide(const signals::RequestView& request, const signals::View& view,
                                    sim::Time now, sim::Draws& draws) {
    for (const Link& link : links_) {
      const Verdict verdict = link.policy->decide(request, view, now, draws);
      if (!verdict.admitted) {
        refused_by_ = link.policy.get();
        return link.first_reason + verdict.reason;
      }
    }
    return std::nullopt;
  }
  /// The Retry-After of the rejection that `decide` has just returned; 0: none.
  sim::Time retry_after(const signals::RequestView& request, sim::Time now) const {
    return refused_by_->retry_after(request, now);
  }
  /// See AdmissionPolicy, of the same rejection.
  std::string detail() const { return refused_by_->detail(); }
  /// The request has been admitted, and there was room for it.
  void commit(const signals::RequestView& request, sim::Time now) {
    for (const Link& link : links_) link.policy->commit(request, now);
  }

  /// Settings or tenants have changed. `from`: those in force before.
  void change(std::span<const Admission> from, std::span<const Admission> to, const Scope& scope,
              bool are_tenants_new, sim::Time now);

  void dispatched(const signals::RequestView& request, sim::Time now) {
    for (AdmissionPolicy* observer : observers_) observer->dispatched(request, now);
  }
  void first_token(const signals::RequestView& request, sim::InstanceId instance, sim::Time now) {
    for (AdmissionPolicy* observer : observers_) observer->first_token(request, instance, now);
  }
  void finished(const signals::RequestView& request, workload::Outcome outcome, sim::Time now) {
    for (AdmissionPolicy* observer : observers_) observer->finished(request, outcome, now);
  }

 private:
  std::vector<Link> links_;
  std::vector<AdmissionPolicy*> observers_;  // the policies that observe
  AdmissionPolicy* refused_by_ = nullptr;    // the last rejection
};

/// Builds the configured chain. AlwaysAdmit, which has no effect in a chain, is left out.
AdmissionChain make_chain(std::span<const Admission> policies, const Scope& scope);

}  // namespace spillway::gateway
