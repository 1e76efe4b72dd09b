from support.specimens import Specimen

from spillway import router

ALWAYS_BUSIEST = Specimen(router.AlwaysBusiest)
CACHE_AWARE = Specimen(
    router.CacheAware,
    examples=(router.CacheAware(), router.CacheAware(balance_abs_threshold=2, cache_threshold=0)),
)
KV_COST = Specimen(
    router.KvCost,
    examples=(
        router.KvCost(),
        router.KvCost(overlap="sent", temperature=0.5),
        router.KvCost(prefill_unit="tokens", overlap_refresh_after_s=0.1),
        router.KvCost(track_prefill=False, request_weight=2),
    ),
)
LEAST_LOADED = Specimen(
    router.LeastLoaded, examples=(router.LeastLoaded(), router.LeastLoaded(ties="random"))
)
ROUND_ROBIN = Specimen(router.RoundRobin)
WEIGHTED = Specimen(
    router.Weighted,
    weight=4,
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
