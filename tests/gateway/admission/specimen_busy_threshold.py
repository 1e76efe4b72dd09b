from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(
    gateway.BusyThreshold,
    weight=1.7,
    strict={
        "proportional": False,
        "BusyMonitor.active_prefill_tokens_threshold": 0,
        "BusyMonitor.busy_rank_share": 0.0,
    },
)
