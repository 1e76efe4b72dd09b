#include "gateway/fairness/python_fairness.h"

#include "gateway/fairness/fairness.h"
#include "gateway/fairness/fairness_factory.h"
#include "sim/error.h"

namespace spillway::gateway {

std::unique_ptr<FairnessPolicy> make(const PythonFairness& config,
                                     std::span<const double> weights) {
  if (!config.factory)
    throw sim::ConfigError({sim::not_imported("gateway.bands.fairness", config.policy)});
  return config.factory->make_fairness(weights);
}

}  // namespace spillway::gateway
