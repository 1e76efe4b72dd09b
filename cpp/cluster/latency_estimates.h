#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/config.h"
#include "fleet/load.h"
#include "instance/instance.h"
#include "signals/signal_source.h"
#include "sim/ids.h"

namespace spillway::instance {
class LatencyModel;
}  // namespace spillway::instance

namespace spillway::cluster {

/// The latencies that one more request would have at an instance, as a planner estimates them from
/// the step times of its server without noise.
class LatencyEstimates {
 public:
  /// Precondition: all instances perform steps.
  explicit LatencyEstimates(const Simulation& simulation);
  ~LatencyEstimates();

  /// A request with this prompt has been sent to the instance.
  void sent(sim::InstanceId id, std::int64_t input_tokens);
  /// Sets `ttft_s` and `itl_s` of the load of an instance, from what it reports. `counters`: of the
  /// instance now; steps since the last estimate had the mean share of the prompts sent since.
  void estimate(sim::InstanceId id, const signals::InstanceSignal& reported,
                const instance::Counters& counters, fleet::Scaled scaled,
                fleet::InstanceLoad& load);

 private:
  struct Server {
    std::unique_ptr<instance::LatencyModel> latency;
    double overhead_s = 0;  // of a step that emits
    std::int64_t ranks = 1;
    std::int64_t max_num_batched_tokens = 0;
    std::int64_t kv_tokens = 0;  // of a rank
    std::int64_t block_size_tokens = 1;
  };
  // Since the last estimate of an instance, and the counters then.
  struct Seen {
    std::int64_t sent_tokens = 0;
    std::int64_t steps = 0;
    std::int64_t kv_hits = 0;
  };
  // Of a rank.
  struct Batch {
    std::int64_t requests = 0;
    std::int64_t context_tokens = 0;
    std::int64_t prompt_tokens = 0;
  };

  static double step_s(const Server& server, const Batch& batch);
  static double prompts_s(const Server& server, std::int64_t tokens, Batch decoding);
  std::int64_t prompt_tokens_per_step(const Server& server, sim::InstanceId id,
                                      const instance::Counters& counters);

  std::vector<Server> servers_;        // by group
  std::vector<std::size_t> group_of_;  // by instance
  std::vector<Seen> seen_;             // by instance
  std::int64_t requests_ = 0;          // sent so far
  std::int64_t input_tokens_ = 0;
};

}  // namespace spillway::cluster
