from support.specimens import Specimen
from support.twins.admission import Observing, Request, check_clear

from spillway import gateway


class Twin(Observing):
    def admits(self, request: Request, now: int, uniform: float) -> bool:
        if not self.inside:
            return True
        targets, load = self.classes[request.slo_class], 0.0
        ahead = min(self.fleet.prefill_tokens(i, now) for i in range(self.fleet.count))
        first = self.to_first.at(ahead + request.prompt)
        if first is not None and targets.ttft_s is not None:
            load = first / targets.ttft_s
        streams = self.streams(now)
        lasts = self.c.decode_s if self.c.decode_s is not None else self.decoding.at(0)
        then = len(streams)
        if self.c.decode_load == "predicted":
            at = now / 1e9 + (first or 0)
            if lasts is not None:
                for other in streams:
                    check_clear(other.first_token / 1e9 + lasts, at)
                streams = [o for o in streams if o.first_token / 1e9 + lasts > at]
            then = len(streams) + sum(o not in self.began for o in self.inside)
        token = self.per_token.at((then + 1) / self.fleet.count)
        if token is not None and targets.tpot_s is not None:
            load = max(load, token / targets.tpot_s)
        check_clear(load, self.c.max_load)
        return load <= self.c.max_load


SPECIMEN = Specimen(
    gateway.EarlyRejection,
    weight=1.2,
    random=lambda rng: gateway.EarlyRejection(
        decode_load=rng.choice(("current", "predicted")),
        max_load=rng.choice((0.6, 1, 1.5)),
        decode_s=rng.choice((None, 0.3)),
        half_life_samples=rng.choice((3, 100)),
    ),
    rule=Twin,
    strict={"max_load": 0.001},
    golden={"early_rejection": gateway.EarlyRejection()},
)
