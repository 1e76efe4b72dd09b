from support.specimens import Specimen
from support.twins.gateway import GlobalFifo, Queues

from spillway import gateway


class Twin(GlobalFifo):
    def __init__(self, policy: gateway.VirtualTokenCounter, weights: list[float]) -> None:
        self.weights, self.counter, self.lift = weights, [0.0] * len(weights), policy.lift
        self.last_departed = self.last_dispatched = 0

    def joined(self, tenant: int, queues: Queues, now: int) -> None:
        if len(queues.flows[tenant]) > 1 or self.lift == "none":
            return
        others = [t for t in queues.backlogged() if t != tenant]
        if self.lift == "max":
            level = self.counter[self.last_dispatched] if others else max(self.counter)
        elif others:
            level = min(self.counter[t] for t in others)
        elif self.lift == "last_departed":
            level = self.counter[self.last_departed]
        else:
            return
        self.counter[tenant] = max(self.counter[tenant], level)

    def next(self, queues: Queues, now: int) -> int | None:
        return min(queues.backlogged(), key=lambda t: (self.counter[t], t), default=None)

    def left(self, tenant: int, queues: Queues) -> None:
        self.last_departed = tenant

    def dispatched(self, tenant: int, queues: Queues) -> None:
        self.last_departed = self.last_dispatched = tenant

    def charge(self, tenant: int, amount: float, now: int) -> None:
        self.counter[tenant] += amount / self.weights[tenant]


SPECIMEN = Specimen(
    gateway.VirtualTokenCounter,
    random=lambda rng, cost: gateway.VirtualTokenCounter(
        lift=rng.choice(("min_backlogged", "last_departed", "max", "none")), cost=cost
    ),
    rule=Twin,
    golden={
        "virtual_token_counter": gateway.VirtualTokenCounter(
            cost=gateway.Cost(unit="weighted_tokens", charge_at="token")
        )
    },
)
