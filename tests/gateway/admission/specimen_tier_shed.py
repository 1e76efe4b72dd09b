from support.specimens import Specimen
from support.twins.admission import Request, Rule

from spillway import gateway


class Twin(Rule):
    def admits(self, request: Request, now: int, uniform: float) -> bool:
        load = max(self.fleet.effective_load(i, now) for i in range(self.fleet.count))
        return load <= self.c.max_load or request.priority >= self.c.min_priority


SPECIMEN = Specimen(
    gateway.TierShed,
    random=lambda rng: gateway.TierShed(
        max_load=rng.choice((0, 6, 12)), min_priority=rng.choice((3, 0, 4))
    ),
    rule=Twin,
    ranges={"min_priority": (-3, 5), "max_load": (1, 30)},
    strict={"max_load": 0, "min_priority": 1000},
    golden={"tier_shed": gateway.TierShed(max_load=4)},
)
