#include "gateway/ceilings.h"

#include <algorithm>
#include <utility>

namespace spillway::gateway {

Ceilings::Ceilings(std::unique_ptr<UsageLimitPolicy> policy, std::vector<double> configured,
                   bool is_cyclic)
    : policy_(std::move(policy)), of_bands_(std::move(configured)), is_cyclic_(is_cyclic) {
  set();
}

void Ceilings::change(std::vector<double> configured) {
  of_bands_ = std::move(configured);
  set();
}

void Ceilings::set() {
  if (!policy_->follows_saturation()) policy_->set_ceilings(0, of_bands_);
  for (std::size_t i = 1; is_cyclic_ && i < of_bands_.size(); ++i) {
    of_bands_[i] = std::min(of_bands_[i], of_bands_[i - 1]);
  }
}

}  // namespace spillway::gateway
