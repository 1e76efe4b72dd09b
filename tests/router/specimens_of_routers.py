from support.specimens import Specimen

from spillway import router

ALWAYS_BUSIEST = Specimen(router.AlwaysBusiest)
CACHE_AWARE = Specimen(
    router.CacheAware,
    examples=(router.CacheAware(), router.CacheAware(balance_abs_threshold=2, cache_threshold=0)),
    golden={"cache_aware": router.CacheAware(balance_abs_threshold=3, cache_threshold=0.1)},
)
KV_COST = Specimen(
    router.KvCost,
    examples=(
        router.KvCost(),
        router.KvCost(overlap="sent", temperature=0.5),
        router.KvCost(prefill_unit="tokens", overlap_refresh_after_s=0.1),
        router.KvCost(track_prefill=False, request_weight=2),
        router.KvCost(host_cache_hit_weight=0.5, disk_cache_hit_weight=0),
    ),
)
LEAST_LOADED = Specimen(
    router.LeastLoaded, examples=(router.LeastLoaded(), router.LeastLoaded(ties="random"))
)
ROUND_ROBIN = Specimen(router.RoundRobin)
WEIGHTED = Specimen(
    router.Weighted,
    weight=4,
    golden={
        "scheduling_llm_d": router.Weighted(
            filters=[
                router.PrefixCacheAffinity(
                    threshold=0.3,
                    exploration=0,
                    max_ttft_penalty_s=0.02,
                    peak_prefill_tokens_per_s=20_000,
                ),
                router.ConcurrencyFilter(
                    concurrency_mode="hybrid",
                    max_concurrency=3,
                    max_token_concurrency=1500,
                    headroom=0.5,
                ),
            ],
            scorers=[
                router.PrecisePrefixCache(scale="prompt", weight=3),
                router.PrefixAffinity(match_length_weight=0.3, match_length_scale_tokens=64),
                router.NoHitLru(memory=16),
                router.ActiveRequests(idle_threshold=1, max_busy_score=0.8),
                router.LoadAware(threshold=4),
                router.TokenLoad(queue_threshold_tokens=2000),
            ],
        ),
        "predicted_latencies": router.Weighted(
            filters=[router.SloHeadroom(exploration=0)],
            scorers=[router.PredictedLatency(), router.SessionAffinity(ttl_s=0.3)],
        ),
        "gates_of_loads": router.Weighted(
            filters=[
                router.ContextLength(
                    ranges=[
                        router.ContextRange(max_tokens=500),
                        router.ContextRange(first_instance=1, num_instances=2, min_tokens=200),
                    ]
                ),
                router.LoadImbalance(threshold=2),
                router.Thresholds(max_in_flight=2, max_kv_utilization=0.9, if_none="reject"),
                router.UtilizationFilter(queue_depth_threshold=2),
            ],
            scorers=[
                router.PrefixAffinity(weight=3),
                router.FreeKvBlocks(),
                router.CacheHitRate(),
                router.QueueDepth(),
                router.RunningRequests(),
                router.KvUtilization(),
                router.VllmDp(),
                router.LoadBalance(),
            ],
        ),
    },
    strict={
        "Weighted.filters": [
            {
                "kind": "context_length",
                "ranges": [{"first_instance": 0, "num_instances": 10**6, "max_tokens": 0}],
                "if_none": "reject",
            }
        ]
    },
)
