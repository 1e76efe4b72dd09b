#include "router/scorers/python_scorer.h"

#include "router/scorers/scorer.h"

namespace spillway::router {

std::unique_ptr<Scorer> make(const PythonScorer& config) {
  return config.make_policy("router.scorers");
}

}  // namespace spillway::router
