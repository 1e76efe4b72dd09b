"""Two policies of the core, written again in Python, decide alike: a start for your own.

python examples/python_policies.py
"""

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


def main():
    """Runs both pairs under the same load."""
    around = Simulation(
        instances=[{"count": 4, "max_num_seqs": 16}],
        workload={"kind": "synthetic", "requests_per_s": 20, "num_requests": 2000},
    )
    for compiled, written in (
        ({"gateway.admission": gateway.TokenBucket()}, {"gateway.admission": TokenBucket}),
        ({"router": router.LeastLoaded()}, {"router": LeastLoaded}),
    ):
        one, other = simulate(around.with_(compiled)), simulate(around.with_(written))
        (name,) = written.values()
        same = (one.requests["instance"] == other.requests["instance"]).all()
        admitted = int(other.requests["admitted"].sum())
        print(f"{name.__name__}: {admitted} admitted; same decisions as the core: {same}")


if __name__ == "__main__":
    main()
