from support.specimens import Specimen
from support.twins.gateway import GlobalFifo, Queues

from spillway import gateway


class Twin(GlobalFifo):
    def __init__(self, _policy: gateway.StartTimeFair, weights: list[float]) -> None:
        self.weights, self.tag = weights, [0.0] * len(weights)
        self.clock = self.largest = 0.0

    def joined(self, tenant: int, queues: Queues, now: int) -> None:
        if sum(map(len, queues.flows)) == 1:
            self.clock = max(self.clock, self.largest)
        if len(queues.flows[tenant]) == 1:
            self.tag[tenant] = max(self.tag[tenant], self.clock)

    def next(self, queues: Queues, now: int) -> int | None:
        return min(queues.backlogged(), key=lambda t: (self.tag[t], t), default=None)

    def dispatched(self, tenant: int, queues: Queues) -> None:
        self.clock = max(self.clock, self.tag[tenant])

    def charge(self, tenant: int, amount: float, now: int) -> None:
        self.tag[tenant] += amount / self.weights[tenant]
        self.largest = max(self.largest, self.tag[tenant])


SPECIMEN = Specimen(
    gateway.StartTimeFair,
    random=lambda _, cost: gateway.StartTimeFair(cost=cost),
    rule=Twin,
    golden={
        "start_time_fair": gateway.StartTimeFair(
            cost=gateway.Cost(unit="weighted_tokens", output_estimate="mean", settles=True)
        )
    },
)
