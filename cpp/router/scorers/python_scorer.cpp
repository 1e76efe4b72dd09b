#include "router/scorers/python_scorer.h"

#include "router/scorers/scorer.h"
#include "router/scorers/scorer_factory.h"
#include "sim/error.h"

namespace spillway::router {

std::unique_ptr<Scorer> make(const PythonScorer& config) {
  if (!config.factory) throw sim::ConfigError({sim::not_imported("router.scorers", config.policy)});
  return config.factory->make_scorer();
}

}  // namespace spillway::router
