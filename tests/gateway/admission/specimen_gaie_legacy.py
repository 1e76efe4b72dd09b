from support.specimens import Specimen
from support.twins.admission import Request, Rule, detector

from spillway import gateway


class Twin(Rule):
    def admits(self, request: Request, now: int, uniform: float) -> bool:
        return request.priority >= 0 or self.fleet.saturation(now, self.c) < 1


SPECIMEN = Specimen(
    gateway.GaieLegacy,
    weight=1.4,
    random=lambda rng: gateway.GaieLegacy(**detector(rng)),
    rule=Twin,
    strict={"detector": "concurrency", "max_concurrency": 0.001},
    golden={"gaie_legacy": gateway.GaieLegacy(queue_depth_threshold=1)},
)
