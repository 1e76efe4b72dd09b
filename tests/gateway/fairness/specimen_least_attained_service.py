from support.specimens import Specimen
from support.twins.gateway import SECOND, GlobalFifo, Queues

from spillway import gateway
from spillway._core.sim import exp2


def place(value: float, among: dict[int, float]) -> float:
    low, high = min(among.values()), max(among.values())
    return (value - low) / (high - low) if high > low else 0.5


class Twin(GlobalFifo):
    tells_tokens = False

    def __init__(self, policy: gateway.LeastAttainedService, weights: list[float]) -> None:
        self.service, self.wait = policy.service_weight, policy.head_wait_weight
        self.half_life_s = policy.half_life_s
        self.always_decays = policy.decay == "always"
        self.attained, self.since = [0.0] * len(weights), [0] * len(weights)

    def joined(self, tenant: int, queues: Queues, now: int) -> None:
        if len(queues.flows[tenant]) == 1 or self.always_decays:
            self.forget(tenant, now)

    def forget(self, tenant: int, now: int) -> None:
        age_s = (now - self.since[tenant]) / SECOND
        self.attained[tenant] *= exp2(-age_s / self.half_life_s)
        self.since[tenant] = now

    def next(self, queues: Queues, now: int) -> int | None:
        waiting = queues.backlogged()
        for tenant in waiting if self.always_decays else ():
            self.forget(tenant, now)
        services = {t: self.attained[t] for t in waiting}
        waits = {t: float(now - queues.head(t)[1]) for t in waiting}

        def score(tenant: int) -> tuple[float, int]:
            served = self.service * (1 - place(services[tenant], services))
            return -(served + self.wait * place(waits[tenant], waits)), tenant

        return min(waiting, key=score, default=None)

    def charge(self, tenant: int, amount: float, now: int) -> None:
        if self.always_decays:
            self.forget(tenant, now)
        self.attained[tenant] += amount
        self.since[tenant] = now


SPECIMEN = Specimen(
    gateway.LeastAttainedService,
    random=lambda rng, cost: gateway.LeastAttainedService(
        half_life_s=rng.choice((1, 60)), decay=rng.choice(("idle", "always")), cost=cost
    ),
    rule=Twin,
    golden={
        "least_attained_service": gateway.LeastAttainedService(),
        "least_attained_service_always": gateway.LeastAttainedService(
            decay="always", scope="gateway", half_life_s=0.2
        ),
    },
)
