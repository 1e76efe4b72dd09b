#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/fitted_states.h"
#include "cluster/health.h"
#include "cluster/request_record.h"
#include "gateway/pipeline.h"
#include "instance/instance.h"
#include "metrics/ledger.h"
#include "metrics/summary.h"
#include "metrics/timeline.h"
#include "router/decisions.h"

namespace spillway::cluster {

/// The results of one instance.
struct InstanceReport {
  std::int64_t completed = 0;
  std::int64_t refused = 0;
  std::int64_t cancelled = 0;  ///< withdrawn, for any reason
  std::int64_t preemptions = 0;
  std::int64_t tokens_recomputed = 0;
  std::int64_t tokens_wasted = 0;
  std::int64_t steps = 0;
  double mean_waiting = 0;  ///< time average of the engine's queue over the fleet's duration
  double mean_waiting_at_step = 0;  ///< average over steps, each sampled at its start
  std::int64_t kv_hits = 0;
  std::int64_t kv_misses = 0;
  std::int64_t kv_lookups = 0;
  instance::Stepping stepping = instance::Stepping::jumps;
};

/// The load of one rank as last known to the gateway.
struct RankReport {
  std::int32_t instance = 0;
  std::int32_t rank = 0;
  std::int64_t active_decode_blocks = 0;
  std::int64_t active_prefill_tokens = 0;
  bool worker_is_busy = false;
};

/// The counts of one instance's ingress, if it is not open.
struct IngressReport {
  std::int32_t instance = 0;
  instance::IngressCounts counts;
};

/// The activity of a run's mechanisms: shows which of them never acted.
struct Activity {
  std::map<std::string, std::int64_t> not_completed;  ///< attempts, by reason
  std::int64_t peak_in_flight = 0;           ///< maximum number of requests over the replicas
  std::vector<bool> limit_held;              ///< whether each limit kept any request waiting
  bool tenant_limit_stopped_others = false;  ///< see Pipeline::has_stopped_others
  bool busy_threshold_exceeded = false;
  bool prefix_index_forgot = false;  ///< whether the record of prompts of any replica was full
  double peak_kv_utilization = 0;    ///< maximum over the instances
};

/// The output of a run.
struct Output {
  std::shared_ptr<const RequestRecord> record;  ///< null unless requests were kept
  std::vector<std::string> tenants;
  std::vector<std::string> slo_classes;
  metrics::Ledger ledger;
  std::shared_ptr<const metrics::Summary> summary;
  Activity activity;
  std::vector<InstanceReport> instances;
  std::vector<RankReport> ranks;                  ///< empty unless a policy consumes load events
  std::vector<IngressReport> ingresses;           ///< of instances whose ingress is not open
  std::vector<FittedStatesReport> fitted_states;  ///< of groups that state them
  std::vector<FaultReport> faults;                ///< in the order in which they began
  router::DecisionLog decisions;
  std::map<std::uint32_t, std::string> refusal_details;  ///< by row; only with logged decisions
  metrics::Timeline timeline;                            ///< empty unless configured
  std::vector<gateway::ControlRecord> control;  ///< actions of the controllers, in order of time
  sim::Time control_interval{0};                ///< between the ticks of `control`
  std::int64_t steps = 0;
  std::int64_t events = 0;
  double end_s = 0;  ///< time of the last event
};

}  // namespace spillway::cluster
