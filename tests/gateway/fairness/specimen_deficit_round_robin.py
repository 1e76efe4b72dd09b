from support.specimens import Specimen
from support.twins.gateway import GlobalFifo, Queues

from spillway import gateway


class Twin(GlobalFifo):
    """A round at a time. Flows that are idle stay in the ring as long as they are in debt."""

    def __init__(self, policy: gateway.DeficitRoundRobin, weights: list[float]) -> None:
        self.credit = [policy.quantum * weight for weight in weights]
        self.deficit = [0.0] * len(weights)
        self.pays_first = policy.cost.charge_at == "dispatch"
        self.pays_at_once = policy.cost.charge_at in {"dispatch", "token"}
        self.cursor = len(weights) - 1
        self.visiting = False
        self.offered = 0.0

    def joined(self, tenant: int, queues: Queues, now: int) -> None:
        if len(queues.flows[tenant]) == 1:
            self.deficit[tenant] = min(self.deficit[tenant], 0)

    def affordable(self, tenant: int, queues: Queues) -> bool:
        if self.pays_first:
            return self.price(tenant, queues) <= self.deficit[tenant]
        return self.deficit[tenant] > 0

    def price(self, tenant: int, queues: Queues) -> float:
        head = queues.head(tenant)[2]
        return head.cost_prompt + head.cost_output

    def next(self, queues: Queues, now: int) -> int | None:
        if not queues.backlogged():
            return None
        while not (self.visiting and self.affordable(self.cursor, queues)):
            self.cursor = (self.cursor + 1) % len(self.deficit)
            self.visiting = bool(queues.flows[self.cursor])
            self.deficit[self.cursor] += self.credit[self.cursor]
            if not self.visiting:
                self.deficit[self.cursor] = min(self.deficit[self.cursor], 0)
        self.offered = self.price(self.cursor, queues) if self.pays_at_once else 0
        return self.cursor

    def emptied(self, tenant: int, owed: float) -> None:
        self.deficit[tenant] = min(self.deficit[tenant], owed)
        if tenant == self.cursor:
            self.visiting = False

    def left(self, tenant: int, queues: Queues) -> None:
        if not queues.flows[tenant]:
            self.emptied(tenant, 0)

    def dispatched(self, tenant: int, queues: Queues) -> None:
        if not queues.flows[tenant]:
            self.emptied(tenant, self.offered)

    def charge(self, tenant: int, amount: float, now: int) -> None:
        self.deficit[tenant] -= amount


SPECIMEN = Specimen(
    gateway.DeficitRoundRobin,
    examples=[gateway.DeficitRoundRobin(), gateway.DeficitRoundRobin(semantics="verbatim")],
    random=lambda rng, cost: gateway.DeficitRoundRobin(
        quantum=rng.choice((1, 50, 1000)), cost=cost
    ),
    rule=Twin,
    golden={
        "deficit_round_robin": gateway.DeficitRoundRobin(
            cost=gateway.Cost(unit="weighted_tokens", output_estimate="mean", settles=True),
            quantum=100,
        ),
        "deficit_round_robin_verbatim": gateway.DeficitRoundRobin(semantics="verbatim"),
    },
)
