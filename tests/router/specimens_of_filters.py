from support.specimens import Specimen

from spillway import router

PREFIX_CACHE_AFFINITY = Specimen(
    router.PrefixCacheAffinity, examples=(router.PrefixCacheAffinity(exploration=0.3),)
)
UTILIZATION_FILTER = Specimen(
    router.UtilizationFilter, examples=(router.UtilizationFilter(queue_depth_threshold=1),)
)
