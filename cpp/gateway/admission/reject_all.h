#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;

/// Rejects everything: exercises the path of a rejection.
struct RejectAll {
  static constexpr std::string_view kind = "reject_all", type_name = "RejectAll";
  static constexpr std::string_view doc =
      "Rejects every request; for testing the effects of a rejection.";
  static void fields(auto /*field*/) {}
  static constexpr std::array reasons{workload::Reason{
      "reject_all", workload::categories::kSaturated, "the policy rejects every request"}};
};

std::unique_ptr<AdmissionPolicy> make(const RejectAll& config);

}  // namespace spillway::gateway
