from __future__ import annotations

from typing import Any

from support.specimens import Specimen
from support.twins.admission import SECOND, Request, Rule

from spillway import gateway


class Twin(Rule):
    """Every charge that was ever made, by key; those of the window are added up at each look."""

    def prepare(self) -> None:
        self.window = round(self.c.window_s * SECOND)
        self.charges: dict[Any, list[list[int]]] = {}
        self.begins: dict[Any, int] = {}
        self.inside: dict[int, tuple[Any, list[int]]] = {}
        self.parallel: dict[Any, int] = {}
        self.buckets: dict[Any, tuple[float, float, int]] = {}  # requests, tokens, last refill
        self.reserved = {entry.slo_class: entry.output_tokens for entry in self.c.reserved_of_class}

    def key(self, request: Request) -> tuple[str | None, str | None, str | None]:
        tenant = self.tenants[request.tenant].name if "tenant" in self.c.key else None
        slo_class = self.classes[request.slo_class].name if "class" in self.c.key else None
        model = self.tenants[request.tenant].model if "model" in self.c.key else None
        return tenant, slo_class, model

    def limits(self, key: tuple[str | None, str | None, str | None]) -> Any:
        for own in self.c.own:
            named = zip((own.tenant, own.slo_class, own.model), key, strict=True)
            if all(name in (None, part) for name, part in named):
                return own
        return self.c

    def begin(self, key: Any, now: int) -> int:
        if self.c.window == "sliding":
            return now - self.window + 1
        if self.c.window == "aligned":
            return now - now % self.window
        if now >= self.begins.get(key, -self.window) + self.window:
            self.begins[key] = now
        return self.begins[key]

    def bucket(self, key: Any, now: int) -> tuple[float, float]:
        """What has not returned yet."""
        requests, tokens, last = self.buckets.get(key, (0.0, 0.0, 0))
        limits = self.limits(key)

        def left(used: float, limit: int | None) -> float:
            if limit is None:
                return 0.0
            return max(0.0, used - float(now - last) * float(limit) / float(self.window))

        found = left(requests, limits.max_requests), left(tokens, limits.max_tokens)
        self.buckets[key] = (*found, now)
        return found

    def used(self, key: Any, now: int) -> tuple[float, float]:
        if self.c.window == "bucket":
            return self.bucket(key, now)
        begin = self.begin(key, now)
        recent = [charge for charge in self.charges.get(key, []) if charge[0] >= begin]
        return sum(charge[1] for charge in recent), sum(charge[2] for charge in recent)

    def charge(self, key: Any, now: int, requests: int, tokens: int) -> list[int]:
        if self.c.window == "bucket":
            used = self.bucket(key, now)
            self.buckets[key] = used[0] + requests, used[1] + tokens, now
            return [now, requests, tokens]
        self.begin(key, now)
        self.charges.setdefault(key, []).append([now, requests, tokens])
        return self.charges[key][-1]

    def tokens(self, request: Request, output: int) -> int:
        prompt = 0 if self.c.tokens == "output" else request.prompt
        return prompt + (0 if self.c.tokens == "prompt" else output)

    def reservation(self, request: Request) -> int:
        if self.c.output_length == "predicted":  # exactly, by default
            return self.tokens(request, max(request.output, 1))
        name = self.classes[request.slo_class].name
        return self.tokens(request, self.reserved.get(name, self.c.reserved_output_tokens))

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        key = self.key(request)
        limits = self.limits(key)
        requests, tokens = self.used(key, now)
        if limits.max_requests is not None and requests + 1 > limits.max_requests:
            return False
        if self.c.counts_refused:
            self.charge(key, now, 1, 0)
        if limits.max_parallel is not None and self.parallel.get(key, 0) >= limits.max_parallel:
            return False
        if limits.max_tokens is None:
            return True
        if self.c.charge == "at_end":
            return tokens + 1 <= limits.max_tokens
        return tokens + self.reservation(request) <= limits.max_tokens

    def commit(self, request: Request, now: int) -> None:
        key = self.key(request)
        reserves = self.c.charge == "reserve" and self.limits(key).max_tokens is not None
        tokens = self.reservation(request) if reserves else 0
        charge = self.charge(key, now, 0 if self.c.counts_refused else 1, tokens)
        self.inside[request.row] = key, charge
        self.parallel[key] = self.parallel.get(key, 0) + 1

    def finished(self, request: Request, now: int) -> None:
        key, charge = self.inside.pop(request.row)
        self.parallel[key] -= 1
        if self.limits(key).max_tokens is None:
            return
        used = self.tokens(request, request.output) if request.outcome == "completed" else 0
        if self.c.window == "sliding" and self.c.charge == "reserve":
            charge[2] = used
        else:
            self.charge(key, now, 0, used - charge[2])


SPECIMEN = Specimen(
    gateway.RateLimit,
    weight=3,
    random=lambda rng: gateway.RateLimit(
        max_requests=rng.choice((None, 4, 10)),
        max_tokens=rng.choice((None, 1500, 4000)),
        max_parallel=rng.choice((None, 3)),
        window_s=rng.choice((0.5, 1, 2)),
        window=rng.choice(("aligned", "first_request", "sliding", "bucket")),
        key=rng.choice(
            (
                *("tenant", "slo_class", "tenant_and_class"),
                *("model", "tenant_and_model", "gateway"),
            )
        ),
        tokens=rng.choice(("total", "prompt", "output")),
        charge=rng.choice(("reserve", "at_end")),
        reserved_output_tokens=rng.choice((0, 10, 200)),
        reserved_of_class=rng.choice(
            ([], [gateway.ClassOutput(slo_class="batch", output_tokens=100)])
        ),
        output_length=rng.choice(("fixed", "predicted", "max_tokens")),  # none is stated
        counts_refused=rng.random() < 0.5,
        retry_after=rng.choice(("none", "window", "remaining")),
    ),
    rule=Twin,
    queues=True,
    ranges={
        "max_requests": (1, 200),
        "max_tokens": (100, 50_000),
        "max_parallel": (1, 60),
        "window_s": (0.05, 20),
        "KeyRate.max_requests": (1, 200),
        "KeyRate.max_tokens": (100, 50_000),
        "KeyRate.max_parallel": (1, 60),
    },
    strict={"max_requests": 0, "own": []},
    own={
        "KeyRate.tenant": lambda drawing: drawing.rng.choice((None, *drawing.tenants)),
        "KeyRate.slo_class": lambda drawing: drawing.rng.choice((None, *drawing.classes)),
    },
    by_events=gateway.RateLimit(max_requests=5, max_parallel=3, window_s=0.5),
    golden={
        "rate_limit": gateway.RateLimit(
            max_requests=8,
            max_tokens=4000,
            max_parallel=4,
            window_s=0.5,
            window="first_request",
            own=[gateway.KeyRate(tenant="bronze", max_requests=3)],
        ),
        "rate_limit_at_end": gateway.RateLimit(
            max_requests=None,
            max_tokens=1500,
            window_s=0.4,
            window="sliding",
            key="slo_class",
            charge="at_end",
            counts_refused=False,
        ),
        "rate_limit_predicted": gateway.RateLimit(
            max_requests=None, max_tokens=2500, window_s=0.5, output_length="predicted"
        ),
        "rate_limit_bucket": gateway.RateLimit(
            max_requests=6,
            max_tokens=2500,
            window_s=0.5,
            window="bucket",
            key="gateway",
            reserved_output_tokens=40,
        ),
    },
)
