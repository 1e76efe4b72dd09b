#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cluster/context.h"
#include "instance/group.h"
#include "instance/instance.h"
#include "sim/time.h"

namespace spillway::cluster {

/// The batch states of one group that states `fitted_states`, at the sampled instants.
struct FittedStatesReport {
  std::int64_t group = 0;    ///< position in `instances`
  std::int64_t states = 0;   ///< sampled states with running requests, over all its instances
  std::int64_t outside = 0;  ///< those outside the fitted states
  double most_running_requests = 0;  ///< of a rank, over all states
  double most_kv_tokens = 0;         ///< of a rank, over all states
};

/// Samples the batches of instances whose step times were fitted, and compares them with the
/// batches of the fit. The interval doubles whenever there are many samples, so that their number
/// is bounded, whatever the length of the run.
class FittedStates {
 public:
  explicit FittedStates(Context& context);

  /// Schedules the first sample now, if any group states `fitted_states`.
  void start();
  /// `continues`: another sample follows.
  void sample(std::span<const std::unique_ptr<instance::Instance>> instances, bool continues);
  std::vector<FittedStatesReport> report() const;

  /// Key of its events of phase `timeline_sample`.
  static constexpr std::uint32_t kKey = 1;

 private:
  struct Watched {
    const instance::InstanceGroup* group = nullptr;
    std::size_t position = 0;  // of the group
    std::size_t first = 0;     // its first instance
    double most_running_requests = 0;
    double most_kv_tokens = 0;
  };
  struct Counts {
    std::int64_t states = 0;
    std::int64_t outside = 0;
  };
  void thin_out();

  Context& context_;
  sim::Time step_{10'000'000};
  std::vector<Watched> watched_;
  std::vector<Counts> counts_;  // one per sample and watched group, sample by sample
};

}  // namespace spillway::cluster
