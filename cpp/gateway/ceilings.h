#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gateway/usage_limit/usage_limit.h"

namespace spillway::gateway {

/// The ceiling of each band, as the usage limit sets it: the saturation of the fleet from which the
/// band waits.
class Ceilings final {
 public:
  /// `configured`: by band, the highest priority first. `is_cyclic`: attempts stop at a band past
  /// its ceiling even if it has no waiting requests, so no lower band has a higher ceiling.
  Ceilings(std::unique_ptr<UsageLimitPolicy> policy, std::vector<double> configured,
           bool is_cyclic);

  /// The configured ceilings have changed.
  void change(std::vector<double> configured);

  double of(std::size_t band) const { return of_bands_[band]; }
  /// Whether the ceilings change with the saturation.
  bool follow_saturation() const { return policy_->follows_saturation(); }
  /// To be called at the beginning of a drain if they do.
  void follow(double saturation) { policy_->set_ceilings(saturation, of_bands_); }

 private:
  void set();

  std::unique_ptr<UsageLimitPolicy> policy_;
  std::vector<double> of_bands_;
  bool is_cyclic_;
};

}  // namespace spillway::gateway
