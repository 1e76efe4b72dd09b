import numpy as np
from support.routing import effective_load, fewest, fewest_in_flight
from support.specimens import Specimen

from spillway import router

ACTIVE_REQUESTS = Specimen(router.ActiveRequests, rule=lambda _, now: fewest_in_flight(now))
KV_UTILIZATION = Specimen(router.KvUtilization, rule=lambda _, now: 1 - now.kv_utilization)
LOAD_AWARE = Specimen(
    router.LoadAware, rule=lambda _, now: 0.5 * (1 - np.minimum(now.waiting, 128) / 128)
)
LOAD_BALANCE = Specimen(router.LoadBalance, rule=lambda _, now: 1 / (1 + effective_load(now)))
NO_HIT_LRU = Specimen(router.NoHitLru)
PRECISE_PREFIX_CACHE = Specimen(router.PrecisePrefixCache)
PREFIX_AFFINITY = Specimen(router.PrefixAffinity)
QUEUE_DEPTH = Specimen(
    router.QueueDepth,
    examples=(router.QueueDepth(), router.QueueDepth(load="effective")),
    rule=lambda policy, now: fewest(
        effective_load(now) if policy.load == "effective" else now.waiting
    ),
)
RUNNING_REQUESTS = Specimen(router.RunningRequests, rule=lambda _, now: fewest(now.running))
VLLM_DP = Specimen(router.VllmDp, rule=lambda _, now: fewest(4 * now.waiting + now.running))
