from support.specimens import Specimen
from support.twins.admission import SECOND, Request, Rule

from spillway import gateway


def mix(x: int) -> int:
    """The finalizer of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


class Twin(Rule):
    def prepare(self) -> None:
        self.ranks = sorted({slo_class.priority for slo_class in self.classes}, reverse=True)
        self.levels = len(self.ranks) * self.c.user_levels
        self.limit = self.levels - 1
        self.forget(0)

    def forget(self, now: int) -> None:
        self.start = now
        self.arrivals: list[int] = []
        self.admitted = 0
        self.delays: list[float] = []

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        is_over = now - self.start >= round(self.c.window_s * SECOND)
        if is_over or len(self.arrivals) >= self.c.window_requests:
            self.set_limit()
            self.forget(now)
        user = request.tenant if self.c.user == "tenant" else request.row
        turn = int(now / 1e9 / self.c.rotation_s)
        number = mix((mix(user) + turn) % 2**64) % self.c.user_levels
        level = self.ranks.index(request.priority) * self.c.user_levels + number
        self.arrivals.append(level)
        self.admitted += level <= self.limit
        return level <= self.limit

    def set_limit(self) -> None:
        def comes(level: int) -> int:
            return sum(before <= level for before in self.arrivals)

        delay = sum(self.delays) / len(self.delays) if self.delays else 0
        if delay > self.c.threshold_s:
            most = (1 - self.c.decrease) * self.admitted
            fitting = [level for level in range(self.levels) if comes(level) <= most]
            self.limit = min(self.limit, max(fitting, default=-1))
        else:
            least = max(1, (1 + self.c.increase) * self.admitted)
            enough = [level for level in range(-1, self.levels) if comes(level) >= least]
            self.limit = max(self.limit, min(enough, default=self.levels - 1))

    def dispatched(self, request: Request, now: int) -> None:
        if self.c.signal == "queue_delay":
            self.delays.append((now - request.arrival) / 1e9)

    def first_token(self, request: Request, now: int) -> None:
        if self.c.signal == "ttft":
            self.delays.append((now - request.arrival) / 1e9)


SPECIMEN = Specimen(
    gateway.Dagor,
    random=lambda rng: gateway.Dagor(
        signal=rng.choice(("queue_delay", "ttft")),
        threshold_s=rng.choice((0.02, 0.3)),
        window_s=rng.choice((0.3, 1)),
        window_requests=rng.choice((15, 2000)),
        decrease=rng.choice((0.05, 0.5)),
        increase=rng.choice((0.01, 0.3)),
        user=rng.choice(("tenant", "request")),
        user_levels=rng.choice((1, 16, 128)),
        rotation_s=rng.choice((2, 3600)),
    ),
    rule=Twin,
    weight=1.5,
    ranges={"window_requests": (5, 200), "user_levels": (1, 128)},
    strict={"signal": "ttft", "threshold_s": 1e-06, "decrease": 1.0, "window_requests": 1},
    late=(20, 60, 800),
    queues=True,
    by_events=gateway.Dagor(signal="ttft", threshold_s=0.2),
    recovers=(gateway.Dagor(threshold_s=0.1, user_levels=1, decrease=1), [0, 0, 0, 0, 0, 4.5]),
    golden={"dagor": gateway.Dagor(signal="ttft", threshold_s=0.1, window_s=0.2, user_levels=4)},
)
