from support.specimens import Specimen
from support.twins.admission import Request, Rule

from spillway import gateway


class Twin(Rule):
    def prepare(self) -> None:
        shares = {budget.tenant: budget.share for budget in self.c.budgets}
        self.shares = [shares.get(tenant.name, self.c.default_share) for tenant in self.tenants]
        self.inside: list[Request] = []

    def admits(self, request: Request, now: int, uniform: float) -> bool:
        share = self.shares[request.tenant]
        if request.priority >= 0 or share is None:
            return True
        in_flight = sum(other.tenant == request.tenant for other in self.inside)
        return in_flight <= share * self.fleet.count

    def dispatched(self, request: Request, now: int) -> None:
        self.inside.append(request)

    def finished(self, request: Request, now: int) -> None:
        if request in self.inside:
            self.inside.remove(request)


SPECIMEN = Specimen(
    gateway.TenantBudget,
    random=lambda rng: gateway.TenantBudget(
        default_share=rng.choice((None, 0, 0.5)),
        budgets=[
            gateway.TenantShare(tenant="a", share=rng.choice((0, 0.3, 1))),
            gateway.TenantShare(tenant="b", share=0.1),
        ],
    ),
    rule=Twin,
    strict={"default_share": 0.0, "budgets": []},
    golden={
        "tenant_budget": gateway.TenantBudget(
            default_share=0.2, budgets=[gateway.TenantShare(tenant="gold", share=0.5)]
        )
    },
)
