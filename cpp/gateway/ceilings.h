#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gateway/usage_limit/usage_limit.h"

namespace spillway::gateway {

/// Of each band, the saturation of the fleet from which it waits, as the usage limit sets it.
class Ceilings final {
 public:
  /// `configured`: by band, the highest priority first. `is_cyclic`: the cycle of attempts stops at
  /// a band past its ceiling also where no request waits there, so that none below lies above it.
  Ceilings(std::unique_ptr<UsageLimitPolicy> policy, std::vector<double> configured,
           bool is_cyclic);

  double of(std::size_t band) const { return of_bands_[band]; }
  /// Whether they change with the saturation.
  bool follow_saturation() const { return policy_->follows_saturation(); }
  /// To be called at the beginning of a drain, where they do.
  void follow(double saturation) { policy_->set_ceilings(saturation, of_bands_); }

 private:
  std::unique_ptr<UsageLimitPolicy> policy_;
  std::vector<double> of_bands_;
};

}  // namespace spillway::gateway
