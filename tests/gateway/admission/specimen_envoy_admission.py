from support.specimens import Specimen
from support.twins.admission import SECOND, Request, Rule

from spillway import gateway


class Twin(Rule):
    def prepare(self) -> None:
        self.ends: list[tuple[int, bool]] = []
        self.known: set[int] = set()

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        oldest = now - round(self.c.window_s * SECOND)
        recent = [success for at, success in self.ends if at > oldest]
        n, s = len(recent), sum(recent) / self.c.success_threshold
        if n / self.c.window_s < self.c.rps_threshold:
            return True
        probability = max(0, (n - s) / (n + 1)) ** (1 / self.c.aggression)
        return uniform >= min(probability, self.c.max_rejection_probability)

    def first_token(self, request: Request, now: int) -> None:
        if self.c.success == "first_token_in_time":
            target = self.classes[request.slo_class].ttft_s
            in_time = target is None or now - request.arrival <= round(target * SECOND)
            self.ends.append((now, in_time))
            self.known.add(request.row)

    def finished(self, request: Request, now: int) -> None:
        if request.row not in self.known:
            self.ends.append((now, request.outcome == "completed"))


SPECIMEN = Specimen(
    gateway.EnvoyAdmission,
    weight=1.3,
    random=lambda rng: gateway.EnvoyAdmission(
        success=rng.choice(("completed", "first_token_in_time")),
        window_s=rng.choice((1, 30)),
        success_threshold=rng.choice((0.95, 0.6)),
        aggression=rng.choice((1, 2.5)),
        rps_threshold=rng.choice((0, 4)),
        max_rejection_probability=rng.choice((0.8, 1)),
    ),
    rule=Twin,
    ranges={"rps_threshold": (1, 50)},
    strict={
        "success": "first_token_in_time",
        "success_threshold": 1.0,
        "rps_threshold": 0.0,
        "max_rejection_probability": 1.0,
    },
    by_events=gateway.EnvoyAdmission(success="first_token_in_time", rps_threshold=1),
    golden={"envoy_admission": gateway.EnvoyAdmission(success="first_token_in_time", window_s=0.5)},
)
