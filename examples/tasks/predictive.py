"""Task f: admission by a predicted TTFT, and whether the rejected would have met their target."""

import numpy as np

import spillway
from spillway import gateway, instance, policies, workload

TARGET_S = 0.5
server = instance.Server(model="llama-3.1-8b", gpu="h100")
base = spillway.Simulation(
    workload=workload.Synthetic(requests_per_s=250, num_requests=4000),
    slo_classes=[workload.SloClass(name="standard", target_ttft_s=TARGET_S)],
    router="least_loaded",
    instances=server.group.replace(count=4),
)
predictive = base.replace(
    gateway=gateway.Gateway(
        admission=gateway.PredictiveTtft(
            estimator="token_backlog",
            budgets=[gateway.TtftBudget(slo_class="standard", budget_s=TARGET_S)],
            ahead="all",
        )
    )
)
for headroom in (1, 0.5, 0.2):
    result = spillway.simulate(predictive.with_({"gateway.admission[0].headroom": headroom}))
    goodput = result.summary()["goodput"]
    print(headroom, "goodput", goodput, result.ledger["rejected"], "rejected")
    # The built-in answer is about an idle fleet.
    print("  idle fleet:", result.admission_regret().summary())
    # The same requests where everything was admitted.
    open_ = spillway.simulate(base).requests
    out = result.requests["outcome"] == "rejected"
    assert (open_["request_id"] == result.requests["request_id"]).all()
    print("  if all were admitted:", np.mean(open_["ttft_s"][out] <= TARGET_S))


# One more admitted, all other decisions as they were: ten of the rejected requests of the last run.
rejected = {int(row) for row in np.flatnonzero(out)}


class Replay(policies.Admission):
    """Repeats recorded decisions but for one request."""

    but = -1

    def decide(self, request, view):
        return int(request.id) == Replay.but or int(request.id) not in rejected


met = []
for Replay.but in sorted(rejected)[:: len(rejected) // 10]:
    again = spillway.simulate(base.with_({"gateway.admission": Replay})).requests
    met.append(bool(again["ttft_s"][Replay.but] <= TARGET_S))
print("each alone, in its place:", met)
