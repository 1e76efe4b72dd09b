#include "router/python_policies.h"

#include "router/deciders/decider.h"
#include "router/filters/filter.h"
#include "router/pickers/picker.h"
#include "router/policy.h"
#include "router/scorers/scorer.h"

namespace spillway::router {

std::unique_ptr<RoutingPolicy> make(const PythonRouter& config) {
  return config.make_policy("router");
}

std::unique_ptr<Filter> make(const PythonFilter& config) {
  return config.make_policy("router.filters");
}

std::unique_ptr<Scorer> make(const PythonScorer& config) {
  return config.make_policy("router.scorers");
}

std::unique_ptr<Picker> make(const PythonPicker& config) {
  return config.make_policy("router.picker");
}

std::unique_ptr<Decider> make(const PythonDecider& config) {
  return config.make_policy("disaggregation.decider");
}

}  // namespace spillway::router
