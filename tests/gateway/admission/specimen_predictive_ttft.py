from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(
    gateway.PredictiveTtft,
    weight=2.5,
    ranges={"protected_priority": (-3, 5), "ColdStart.floor_burst": (1, 5)},
    strict={"budgets": [], "protected_priority": None, "exploration": 0.0, "headroom": 1000.0},
)
