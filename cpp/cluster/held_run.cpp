#include "cluster/held_run.h"

#include <memory>

#include "cluster/nesting.h"
#include "cluster/run.h"
#include "sim/schema/codec.h"

namespace spillway::cluster {

Output run(const Simulation& simulation, std::uint64_t seed, const RunOptions& options) {
  if (!options.is_checked) sim::check(simulation);
  check_has_requests(simulation);
  const InsideRun inside;
  const std::unique_ptr<HeldRun> run = hold(simulation, seed, options);
  run->advance(run->horizon());
  return run->finish();
}

}  // namespace spillway::cluster
