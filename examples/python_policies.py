"""Three policies of the core, written again in Python, decide alike: a start for your own.

python examples/python_policies.py
"""

import numpy as np

from spillway import Simulation, gateway, policies, router, simulate


class TokenBucket(policies.Admission):
    """Limits the rate of prompt tokens, as `gateway.TokenBucket` does."""

    def __init__(self, capacity_tokens=10000.0, refill_tokens_per_s=1000.0):
        self.capacity_tokens = capacity_tokens
        self.refill_tokens_per_s = refill_tokens_per_s
        self.tokens = capacity_tokens
        self.last_s = 0.0

    def _refill(self, now_s):
        added = self.refill_tokens_per_s * (now_s - self.last_s)
        self.tokens = min(self.capacity_tokens, self.tokens + added)
        self.last_s = now_s

    def decide(self, request, view):
        """Charges nothing: another policy may still reject the request."""
        self._refill(view.now_s)
        return self.tokens >= request.input_tokens or policies.Reject("rate_limited")

    def commit(self, request, now_s):
        """The request has been admitted, at the instant of the decision."""
        self.tokens -= request.input_tokens


class LeastLoaded(policies.Router):
    """The first instance with the smallest effective load, as `router.LeastLoaded`."""

    def pick(self, request, view):
        """Reads all candidates at once."""
        return (view.waiting + view.running + view.in_flight).argmin()


class DeficitRoundRobin(policies.Fairness):
    """Tenants in turn, each with credit by its weight, as `gateway.DeficitRoundRobin` does.

    Charges at dispatch. Unused credit is lost when the queue of a tenant becomes empty.
    """

    def __init__(self, quantum=1.0):
        self.quantum = quantum
        self.credit = {}  # of the tenants with queued requests
        self.resumes = set()  # those whose turn a limit has interrupted
        self.turn = -1
        self.serves = False  # whether the turn goes on

    def joined(self, tenant, queues):
        """A tenant that was idle begins without credit."""
        self.credit.setdefault(tenant, 0.0)

    def left(self, tenant, queues):
        """Gives up the credit with the last request."""
        if queues.lengths[tenant] == 0:
            del self.credit[tenant]
            self.resumes.discard(tenant)
            if tenant == self.turn:
                self.serves = False

    def next(self, queues):
        """The tenant at turn while its credit lasts, or else the next that can pay."""
        costs, may_start = queues.head_costs, queues.may_start
        if self.serves:
            affords = costs[self.turn] <= self.credit[self.turn]
            if affords and may_start[self.turn]:
                return self.turn
            if affords:
                self.resumes.add(self.turn)
            self.serves = False
        if not may_start.any():
            return None
        while True:
            self.turn = (self.turn + 1) % len(queues)
            if not may_start[self.turn]:
                continue
            if self.turn not in self.resumes:
                self.credit[self.turn] += self.quantum * queues.weights[self.turn]
            self.resumes.discard(self.turn)
            if costs[self.turn] <= self.credit[self.turn]:
                self.serves = True
                return self.turn

    def dispatched(self, tenant, queues):
        """The request has left its queue; its charge follows."""
        self.left(tenant, queues)

    def charge(self, tenant, amount, now_s):
        """Pays for a dispatch."""
        if tenant in self.credit:
            self.credit[tenant] -= amount


def main():
    """Runs all pairs under the same load."""
    around = Simulation(
        tenants=[{"name": "gold", "weight": 3}, {"name": "free"}],
        instances=[{"count": 4, "max_num_seqs": 16}],
        gateway={"limit": [{"kind": "fixed", "max_in_flight": 32}]},
        workload={
            "kind": "synthetic",
            "requests_per_s": 40,
            "num_requests": 2000,
            "clients": [{"name": "a", "tenant": "gold"}, {"name": "b", "tenant": "free"}],
        },
    )
    drr = "gateway.bands[0].fairness"
    for compiled, written in (
        ({"gateway.admission": gateway.TokenBucket()}, {"gateway.admission": TokenBucket}),
        ({"router": router.LeastLoaded()}, {"router": LeastLoaded}),
        ({drr: gateway.DeficitRoundRobin()}, {drr: DeficitRoundRobin}),
    ):
        one, other = simulate(around.with_(compiled)), simulate(around.with_(written))
        (name,) = written.values()
        same = all(
            np.array_equal(one.requests[column], other.requests[column], equal_nan=True)
            for column in ("admitted", "instance", "queue_s")
        )
        admitted = int(other.requests["admitted"].sum())
        print(f"{name.__name__}: {admitted} admitted; same decisions as the core: {same}")


if __name__ == "__main__":
    main()
