from support.specimens import Specimen

from spillway import router

ALWAYS_BUSIEST = Specimen(router.AlwaysBusiest)
KV_COST = Specimen(
    router.KvCost, examples=(router.KvCost(), router.KvCost(overlap="sent", temperature=0.5))
)
LEAST_LOADED = Specimen(
    router.LeastLoaded, examples=(router.LeastLoaded(), router.LeastLoaded(ties="random"))
)
ROUND_ROBIN = Specimen(router.RoundRobin)
WEIGHTED = Specimen(router.Weighted, weight=4)
