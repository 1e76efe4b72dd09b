#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "signals/compiled_policy.h"
#include "signals/needs.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// The functions of an admission policy; null: none, but for `decide`.
struct AdmissionFunctions : sim::Attachment {
  signals::DecideFunction* decide = nullptr;
  signals::NotifyFunction* commit = nullptr;
  signals::NotifyFunction* dispatched = nullptr;
  signals::NotifyFunction* first_token = nullptr;
  signals::NotifyFunction* finished = nullptr;
  std::shared_ptr<void> owner;  ///< keeps the code in memory
};

/// An admission policy in a C function.
struct CompiledAdmission : signals::CompiledPolicy<AdmissionFunctions> {
  bool reads_instances = true;
  bool is_random = false;

  static constexpr std::string_view type_name = "CompiledAdmission";
  static constexpr std::string_view doc =
      "An admission policy in a C function, made by spillway.policies.compiled_admission.";
  static void fields(auto field) {
    CompiledPolicy::fields<CompiledAdmission>(field);
    field("reads_instances", &CompiledAdmission::reads_instances,
          "Whether it gets the metrics of the instances, which takes time for each of them.");
    field("is_random", &CompiledAdmission::is_random,
          "Whether it gets a random number for each decision.");
  }
  static constexpr signals::Needs needs{.output_lengths = true};
  static constexpr std::array reasons{
      workload::Reason{"compiled_saturated", workload::categories::kSaturated,
                       "the compiled policy rejects the request: SPILLWAY_REJECT_SATURATED"},
      workload::Reason{"compiled_rate_limited", workload::categories::kRateLimited,
                       "the compiled policy rejects the request: SPILLWAY_REJECT_RATE_LIMITED"},
      workload::Reason{"compiled_unservable", workload::categories::kUnservable,
                       "the compiled policy rejects the request: SPILLWAY_REJECT_UNSERVABLE"}};
  /// Whether it wants to know what becomes of requests.
  bool observes() const {
    return functions && (functions->dispatched || functions->first_token || functions->finished);
  }
  bool draws() const { return is_random; }
};

std::unique_ptr<AdmissionPolicy> make(const CompiledAdmission& config);

}  // namespace spillway::gateway
