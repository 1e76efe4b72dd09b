#pragma once

#include <memory>
#include <string_view>

namespace spillway::gateway {

class AdmissionPolicy;

/// Admits everything: the control of every comparison.
struct AlwaysAdmit {
  static constexpr std::string_view kind = "always_admit", type_name = "AlwaysAdmit";
  static constexpr std::string_view doc = "Admits every request.";
  static void fields(auto /*field*/) {}
};

std::unique_ptr<AdmissionPolicy> make(const AlwaysAdmit& config);

}  // namespace spillway::gateway
