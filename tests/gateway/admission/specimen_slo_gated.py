import random

from support.specimens import Specimen
from support.twins.admission import Request, Rule

from spillway import gateway


def settings(rng: random.Random) -> gateway.SloGated:
    signal = rng.choice(("max_waiting", "mean_effective_load", "total_waiting"))
    most = {"max_waiting": 5, "mean_effective_load": 14, "total_waiting": 12}[signal]
    return gateway.SloGated(
        signal=signal,
        critical_priority=rng.choice((4, 3)),
        standard_threshold=rng.choice((None, most)),
        sheddable_threshold=rng.choice((most // 2, most)),
    )


class Twin(Rule):
    def admits(self, request: Request, now: int, uniform: float) -> bool:
        if request.priority >= self.c.critical_priority:
            return True
        limit = self.c.standard_threshold if request.priority >= 0 else self.c.sheddable_threshold
        if limit is None:
            return True
        queues = [len(self.fleet.waiting(i, now)) for i in range(self.fleet.count)]
        if self.c.signal == "max_waiting":
            return max(queues) < limit
        if self.c.signal == "total_waiting":
            return sum(queues) <= limit
        loads = [self.fleet.effective_load(i, now) for i in range(self.fleet.count)]
        return sum(loads) / len(loads) <= limit


SPECIMEN = Specimen(
    gateway.SloGated,
    random=settings,
    rule=Twin,
    weight=2,
    ranges={"critical_priority": (-3, 5)},
    strict={"critical_priority": 1000, "standard_threshold": 0.0, "sheddable_threshold": 0.0},
    golden={"slo_gated": gateway.SloGated(standard_threshold=3, sheddable_threshold=1)},
)
