from support.specimens import Specimen
from support.twins.admission import Request, Rule

from spillway import gateway


class Twin(Rule):
    def prepare(self) -> None:
        rates = {rate.tenant: rate for rate in self.c.own}
        weights = sum(tenant.weight for tenant in self.tenants if tenant.name not in rates)
        self.capacity, self.refill = [], []
        for tenant in self.tenants:
            if tenant.name in rates:
                self.capacity.append(rates[tenant.name].capacity_tokens)
                self.refill.append(rates[tenant.name].refill_tokens_per_s)
            else:
                self.capacity.append(tenant.weight / weights * self.c.capacity_tokens)
                self.refill.append(tenant.weight / weights * self.c.refill_tokens_per_s)
        self.tokens, self.at = list(self.capacity), [0] * len(self.tenants)
        reserves = {reserve.slo_class: reserve.share for reserve in self.c.reserves}
        self.reserve = [reserves.get(slo_class.name, 0.0) for slo_class in self.classes]

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        i = request.tenant
        gained = (now - self.at[i]) / 1000 * self.refill[i] / 1e6
        self.tokens[i], self.at[i] = min(self.capacity[i], self.tokens[i] + gained), now
        return self.tokens[i] >= request.prompt + self.reserve[request.slo_class] * self.capacity[i]

    def commit(self, request: Request, now: int) -> None:
        self.tokens[request.tenant] -= request.prompt


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
