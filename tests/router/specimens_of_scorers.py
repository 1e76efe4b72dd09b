import numpy as np
from support.routing import effective_load, fewest, fewest_in_flight
from support.specimens import Specimen

from spillway import router

ACTIVE_REQUESTS = Specimen(
    router.ActiveRequests,
    examples=(
        router.ActiveRequests(),
        router.ActiveRequests(idle_threshold=2, max_busy_score=0.75),
    ),
    rule=lambda policy, now: np.where(
        now.in_flight <= policy.idle_threshold, 1, fewest_in_flight(now) * policy.max_busy_score
    ),
)
CACHE_HIT_RATE = Specimen(router.CacheHitRate)
FREE_KV_BLOCKS = Specimen(router.FreeKvBlocks)
KV_UTILIZATION = Specimen(router.KvUtilization, rule=lambda _, now: 1 - now.kv_utilization)
LOAD_AWARE = Specimen(
    router.LoadAware,
    examples=(router.LoadAware(), router.LoadAware(threshold=3)),
    rule=lambda policy, now: (
        0.5 * (1 - np.minimum(now.waiting, policy.threshold) / policy.threshold)
    ),
)
LOAD_BALANCE = Specimen(router.LoadBalance, rule=lambda _, now: 1 / (1 + effective_load(now)))
LORA_AFFINITY = Specimen(router.LoraAffinity)
NO_HIT_LRU = Specimen(router.NoHitLru, examples=(router.NoHitLru(), router.NoHitLru(memory=1)))
PRECISE_PREFIX_CACHE = Specimen(
    router.PrecisePrefixCache,
    weight=1.3,
    examples=(router.PrecisePrefixCache(), router.PrecisePrefixCache(scale="prompt")),
)
PREDICTED_LATENCY = Specimen(
    router.PredictedLatency,
    weight=1.5,
    examples=(router.PredictedLatency(), router.PredictedLatency(strategy="most", kv_weight=3)),
)
PREFIX_AFFINITY = Specimen(
    router.PrefixAffinity,
    examples=(
        router.PrefixAffinity(),
        router.PrefixAffinity(match_length_weight=0.5, match_length_scale_tokens=256),
    ),
)
QUEUE_DEPTH = Specimen(
    router.QueueDepth,
    examples=(router.QueueDepth(), router.QueueDepth(load="effective")),
    rule=lambda policy, now: fewest(
        effective_load(now) if policy.load == "effective" else now.waiting
    ),
)
RUNNING_REQUESTS = Specimen(router.RunningRequests, rule=lambda _, now: fewest(now.running))
SESSION_AFFINITY = Specimen(
    router.SessionAffinity,
    examples=(
        router.SessionAffinity(),
        router.SessionAffinity(session_segments=2, ttl_s=0.5),
    ),
)
TOKEN_LOAD = Specimen(
    router.TokenLoad,
    examples=(router.TokenLoad(), router.TokenLoad(queue_threshold_tokens=1000)),
)
VLLM_DP = Specimen(router.VllmDp, rule=lambda _, now: fewest(4 * now.waiting + now.running))
