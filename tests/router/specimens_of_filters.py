from support.specimens import Specimen

from spillway import router

PREFIX_CACHE_AFFINITY = Specimen(
    router.PrefixCacheAffinity,
    examples=(
        router.PrefixCacheAffinity(exploration=0.3),
        router.PrefixCacheAffinity(max_ttft_penalty_s=0.01, peak_prefill_tokens_per_s=1000),
    ),
)
CONTEXT_LENGTH = Specimen(
    router.ContextLength,
    ranges={"ContextRange.min_tokens": (1, 500), "ContextRange.max_tokens": (200, 2000)},
    examples=(
        router.ContextLength(),
        router.ContextLength(
            ranges=[
                router.ContextRange(max_tokens=100),
                router.ContextRange(first_instance=1, min_tokens=50),
            ]
        ),
    ),
)
CONCURRENCY_FILTER = Specimen(
    router.ConcurrencyFilter,
    examples=(
        router.ConcurrencyFilter(max_concurrency=1),
        router.ConcurrencyFilter(concurrency_mode="tokens", max_token_concurrency=100),
    ),
)
LOAD_IMBALANCE = Specimen(
    router.LoadImbalance,
    examples=(router.LoadImbalance(threshold=2), router.LoadImbalance(threshold=1, load="running")),
)
SLO_HEADROOM = Specimen(router.SloHeadroom, examples=(router.SloHeadroom(exploration=0.3),))
THRESHOLDS = Specimen(
    router.Thresholds,
    examples=(
        router.Thresholds(max_in_flight=1, max_kv_utilization=0.9),
        router.Thresholds(max_running=1, max_waiting=0),
    ),
)
UTILIZATION_FILTER = Specimen(
    router.UtilizationFilter, examples=(router.UtilizationFilter(queue_depth_threshold=1),)
)
