#include "gateway/fairness/python_fairness.h"

#include "gateway/fairness/fairness.h"

namespace spillway::gateway {

std::unique_ptr<FairnessPolicy> make(const PythonFairness& config,
                                     std::span<const double> weights) {
  return config.make_policy("gateway.bands.fairness", weights);
}

}  // namespace spillway::gateway
