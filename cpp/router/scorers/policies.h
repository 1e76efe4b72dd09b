#pragma once

#include <variant>

#include "router/python_policies.h"
#include "router/scorers/active_requests.h"
#include "router/scorers/cache_hit_rate.h"
#include "router/scorers/compiled_scorer.h"
#include "router/scorers/free_kv_blocks.h"
#include "router/scorers/kv_utilization.h"
#include "router/scorers/load_aware.h"
#include "router/scorers/load_balance.h"
#include "router/scorers/lora_affinity.h"
#include "router/scorers/no_hit_lru.h"
#include "router/scorers/precise_prefix_cache.h"
#include "router/scorers/predicted_latency.h"
#include "router/scorers/prefix_affinity.h"
#include "router/scorers/queue_depth.h"
#include "router/scorers/running_requests.h"
#include "router/scorers/session_affinity.h"
#include "router/scorers/token_load.h"
#include "router/scorers/vllm_dp.h"

namespace spillway::router {

/// Every scorer. This list is the only place that names them all.
using AnyScorer = std::variant<PrefixAffinity, PrecisePrefixCache, QueueDepth, KvUtilization,
                               LoadBalance, ActiveRequests, RunningRequests, LoadAware, NoHitLru,
                               VllmDp, TokenLoad, LoraAffinity, PredictedLatency, SessionAffinity,
                               FreeKvBlocks, CacheHitRate, PythonScorer, CompiledScorer>;

}  // namespace spillway::router
