from support.specimens import Specimen
from support.twins.admission import Request, Rule

from spillway import gateway


class Twin(Rule):
    def prepare(self) -> None:
        own = {one.tenant: one for one in self.c.own}
        weights = sum(one.weight for one in self.tenants if one.name not in own)
        self.capacity, self.refill = [], []
        for one in self.tenants:
            if one.name in own:
                self.capacity.append(own[one.name].capacity_tokens)
                self.refill.append(own[one.name].refill_tokens_per_s)
            else:
                self.capacity.append(one.weight / weights * self.c.capacity_tokens)
                self.refill.append(one.weight / weights * self.c.refill_tokens_per_s)
        self.tokens, self.at = list(self.capacity), [0] * len(self.tenants)
        reserves = {one.slo_class: one.share for one in self.c.reserves}
        self.reserve = [reserves.get(one.name, 0.0) for one in self.classes]

    def admits(self, one: Request, now: int, uniform: float) -> bool:
        i = one.tenant
        gained = (now - self.at[i]) / 1000 * self.refill[i] / 1e6
        self.tokens[i], self.at[i] = min(self.capacity[i], self.tokens[i] + gained), now
        return self.tokens[i] >= one.prompt + self.reserve[one.slo_class] * self.capacity[i]

    def commit(self, one: Request, now: int) -> None:
        self.tokens[one.tenant] -= one.prompt


SPECIMEN = Specimen(
    gateway.TenantTokenBucket,
    random=lambda rng: gateway.TenantTokenBucket(
        capacity_tokens=rng.choice((2000, 6000)),
        refill_tokens_per_s=rng.choice((1000, 4000)),
        own=rng.choice(
            ([], [gateway.TenantRate(tenant="b", capacity_tokens=900, refill_tokens_per_s=1500)])
        ),
        reserves=rng.choice(
            (
                [],
                [
                    gateway.ClassReserve(slo_class="batch", share=0.4),
                    gateway.ClassReserve(slo_class="standard", share=0.1),
                ],
            )
        ),
    ),
    rule=Twin,
    ranges={"capacity_tokens": (100, 50_000), "TenantRate.capacity_tokens": (100, 50_000)},
    strict={"capacity_tokens": 0.0, "own": []},
    by_events=gateway.TenantTokenBucket(capacity_tokens=3000, refill_tokens_per_s=6000),
    golden={
        "tenant_token_bucket": gateway.TenantTokenBucket(
            capacity_tokens=4000,
            refill_tokens_per_s=9000,
            own=[
                gateway.TenantRate(tenant="bronze", capacity_tokens=900, refill_tokens_per_s=2000)
            ],
            reserves=[gateway.ClassReserve(slo_class="batch", share=0.3)],
        )
    },
)
