from support.specimens import Specimen
from support.twins.admission import Request, Rule, detector

from spillway import gateway
from spillway._core import sim


class Twin(Rule):
    def admits(self, request: Request, now: int, uniform: float) -> bool:
        if request.priority >= 0:
            return True
        s = self.fleet.saturation(now, self.c)
        return uniform >= min(1, self.c.k * sim.pow(s, self.c.power))


SPECIMEN = Specimen(
    gateway.Probabilistic,
    weight=1.5,
    random=lambda rng: gateway.Probabilistic(
        **detector(rng), k=rng.choice((300, 1, 0.5)), power=rng.choice((5, 1, 2.5))
    ),
    rule=Twin,
    strict={"detector": "concurrency", "max_concurrency": 0.001},
    golden={"probabilistic": gateway.Probabilistic(k=1, power=2, queue_depth_threshold=2)},
)
