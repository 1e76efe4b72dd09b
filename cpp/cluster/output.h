#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/request_record.h"
#include "gateway/pipeline.h"
#include "instance/instance.h"
#include "metrics/ledger.h"
#include "metrics/summary.h"
#include "metrics/timeline.h"
#include "router/decisions.h"

namespace spillway::cluster {

/// What one instance did.
struct InstanceReport {
  std::int64_t completed = 0;
  std::int64_t refused = 0;
  std::int64_t cancelled = 0;  ///< withdrawn, for whatever reason
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
  double mean_waiting = 0;  ///< time average of the engine's queue over the fleet's duration
  double mean_waiting_at_step =
      0;  ///< the same averaged over steps, each sampled once it has begun
  std::int64_t kv_hits = 0;
  std::int64_t kv_misses = 0;
  std::int64_t kv_lookups = 0;
  instance::Stepping stepping = instance::Stepping::jumps;
};

/// What the gateway has last been told of the load of one rank.
struct RankReport {
  std::int32_t instance = 0;
  std::int32_t rank = 0;
  std::int64_t active_decode_blocks = 0;
  std::int64_t active_prefill_tokens = 0;
  bool worker_is_busy = false;
};

/// What the ingress of one instance has seen, where it is not open.
struct IngressReport {
  std::int32_t instance = 0;
  instance::IngressCounts counts;
};

/// How far the mechanisms of a run went: what shows that one never acted.
struct Activity {
  std::map<std::string, std::int64_t> not_completed;  ///< attempts, by reason
  std::int64_t peak_in_flight = 0;                    ///< requests; of the replica with the most
  std::vector<bool> limit_held;  ///< of each limit, whether it kept any request waiting
  bool busy_threshold_exceeded = false;
  double peak_kv_utilization = 0;  ///< of the instance with the most
};

/// Everything that a run leaves behind.
struct Output {
  std::shared_ptr<const RequestRecord> record;  ///< null unless requests were kept
  std::vector<std::string> tenants;
  std::vector<std::string> slo_classes;
  metrics::Ledger ledger;
  metrics::Summary summary;
  Activity activity;
  std::vector<InstanceReport> instances;
  std::vector<RankReport> ranks;         ///< empty unless load events are followed
  std::vector<IngressReport> ingresses;  ///< of instances whose ingress is not open
  router::DecisionLog decisions;
  metrics::Timeline timeline;                   ///< empty unless it was asked for
  std::vector<gateway::ControlRecord> control;  ///< what controllers did, in order of time
  std::int64_t steps = 0;
  std::int64_t events = 0;
  double end_s = 0;  ///< instant of the last event
};

}  // namespace spillway::cluster
