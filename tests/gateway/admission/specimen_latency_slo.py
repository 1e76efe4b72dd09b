from support.specimens import Specimen
from support.twins.admission import Class, Observing, Request, check_clear

from spillway import gateway


class Twin(Observing):
    def admits(self, request: Request, now: int, uniform: float) -> bool:
        targets = self.classes[request.slo_class]
        if request.priority >= 0 or (targets.ttft_s is None and targets.tpot_s is None):
            return True
        return any(self.takes(request, targets, i, now) for i in range(self.fleet.count))

    def takes(self, request: Request, targets: Class, i: int, now: int) -> bool:
        if not self.fleet.running(i, now):
            return True
        if self.fleet.kv_utilization(i, now) < self.c.cold_kv_utilization:
            return True
        here = [other for other in self.streams(now) if other.instance == i]
        first = self.to_first.at(self.fleet.prefill_tokens(i, now) + request.prompt)
        token = self.per_token.at(len(here) + 1)
        others = [self.classes[other.slo_class].tpot_s for other in here]
        strictest = targets.tpot_s
        if strictest is not None:
            strictest = min([strictest, *(target for target in others if target is not None)])
        return self.keeps(targets.ttft_s, first) and self.keeps(strictest, token)

    def keeps(self, target: float | None, predicted: float | None) -> bool:
        if target is None or predicted is None:
            return True
        check_clear(predicted, target * self.c.headroom_factor)
        return predicted <= target * self.c.headroom_factor


SPECIMEN = Specimen(
    gateway.LatencySlo,
    random=lambda rng: gateway.LatencySlo(
        headroom_factor=rng.choice((0.5, 1, 2)),
        cold_kv_utilization=rng.choice((0, 0.02, 0.1)),
        half_life_samples=rng.choice((3, 100)),
    ),
    rule=Twin,
    strict={"headroom_factor": 0.001, "cold_kv_utilization": 0.0},
    golden={"latency_slo": gateway.LatencySlo()},
)
