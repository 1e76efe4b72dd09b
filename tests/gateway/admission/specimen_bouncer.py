import numpy as np
from support.specimens import Specimen
from support.twins.admission import Request, Rule

from spillway import gateway


class Twin(Rule):
    def prepare(self) -> None:
        each = range(len(self.classes))
        self.to_first: list[list[float]] = [[] for _ in each]
        self.to_end: list[list[float]] = [[] for _ in each]
        self.verdicts: list[list[bool]] = [[] for _ in each]
        self.queued: list[Request] = []
        self.in_flight = 0

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        targets = self.classes[request.slo_class]
        goes = self.keeps(targets.ttft_s, self.to_first[request.slo_class])
        goes = goes and self.keeps(targets.e2e_s, self.to_end[request.slo_class])
        latest = self.verdicts[request.slo_class][-self.c.share_requests :]
        goes = goes or sum(latest) < self.c.min_share * (len(latest) + 1)
        self.verdicts[request.slo_class].append(goes)
        return goes

    def keeps(self, target: float | None, times: list[float]) -> bool:
        times = times[-self.c.samples :]
        if target is None or len(times) < self.c.min_samples:
            return True
        work = 0.0
        for k, ends in enumerate(self.to_end):
            count = sum(request.slo_class == k for request in self.queued)
            if count and ends:
                latest = ends[-self.c.samples :]
                work += count * sum(latest) / len(latest)
        wait = work / max(self.in_flight, 1)
        return wait + float(np.quantile(times, self.c.percentile / 100)) <= target

    def commit(self, request: Request, now: int) -> None:
        self.queued.append(request)

    def dispatched(self, request: Request, now: int) -> None:
        self.queued.remove(request)
        self.in_flight += 1

    def first_token(self, request: Request, now: int) -> None:
        self.to_first[request.slo_class].append((now - request.dispatched) / 1e9)

    def finished(self, request: Request, now: int) -> None:
        if request in self.queued:
            self.queued.remove(request)
        else:
            self.in_flight -= 1
            self.to_end[request.slo_class].append((now - request.dispatched) / 1e9)


SPECIMEN = Specimen(
    gateway.Bouncer,
    random=lambda rng: gateway.Bouncer(
        percentile=rng.choice((50, 90, 99)),
        samples=rng.choice((5, 100)),
        min_samples=rng.choice((1, 4)),
        min_share=rng.choice((0, 0.1, 0.5)),
        share_requests=rng.choice((7, 100)),
    ),
    rule=Twin,
    ranges={"samples": (5, 100), "min_samples": (1, 10), "share_requests": (5, 100)},
    strict={"min_samples": 1, "min_share": 0.0},
    queues=True,
    by_events=gateway.Bouncer(),
    recovers=(gateway.Bouncer(min_samples=1, min_share=0), [0, 1.5, 1.6, 1.7]),
    golden={"bouncer": gateway.Bouncer(percentile=75, min_samples=2, min_share=0.2)},
)
