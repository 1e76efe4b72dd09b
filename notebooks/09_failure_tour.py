# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How do fleets fail under overload, and which settings cure that?
#
# A tour of four failures.
# Each is made to happen, seen, and cured by one change:
#
# 1. a **noisy neighbor**: the burst of one tenant delays all others;
# 2. a **retry storm**: a fleet stays overloaded after the burst has ended;
# 3. a **death spiral**: a controller starves the fleet that it protects;
# 4. **herding**: a router sends all requests to the same server.
#
# It takes about 10 s of processor time.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown

import spillway
from spillway import gateway, instance, presets, profiles, router, signals, workload
from spillway.report import plots
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # fewer seeds, for the tests
SEEDS = range(2) if FAST else range(5)


def goodput(results):
    return f"{results.summary()['goodput'].mean:.0%}"


# %% [markdown]
# ## 1. A noisy neighbor
#
# Three tenants share four servers.
# From 60 s to 120 s, bronze sends nine times its load of long prompts.

# %%
LONG = workload.Lognormal(mu=7.5, sigma=0.5, max_tokens=8000)
SHORT = workload.Lognormal(mu=6.0, sigma=0.7, max_tokens=4000)
BURST_S = (60, 120)


def client(tenant, requests_per_s, input_tokens, start_s=0, end_s=240):
    return workload.Client(
        name=f"{tenant} from {start_s} s",
        tenant=tenant,
        slo_class=tenant,
        requests_per_s=requests_per_s,
        start_s=start_s,
        duration_s=end_s - start_s,
        input_tokens=input_tokens,
        output_tokens=workload.Lognormal(mu=4.4, sigma=0.6, max_tokens=1000),
    )


usual = [
    client("gold", 24, SHORT),
    client("silver", 24, SHORT),
    client("bronze", 12, LONG),
]
noisy = spillway.Simulation(
    workload=workload.Synthetic(clients=[*usual, client("bronze", 96, LONG, *BURST_S)]),
    slo_classes=[
        workload.SloClass(name="gold", target_ttft_s=0.3),
        workload.SloClass(name="silver", target_ttft_s=0.5),
        workload.SloClass(name="bronze", target_ttft_s=2),
    ],
    router="least_loaded",
    instances=instance.Server(model="llama-3.1-8b", gpu="h100", max_model_len=16384).group.replace(
        count=4
    ),
)
sick = spillway.simulate(noisy, seeds=SEEDS)
ax = sick.plot.over_time("p95_ttft_ms", "tenant", bins=48, log=True)
burst = ax.axvspan(*BURST_S, color="gray", alpha=0.2, linewidth=0)

# %% [markdown]
# In the burst, all tenants wait: the servers work in order of arrival, and bronze has filled their
# queues.
# The cure is a queue per tenant *in front of* the servers: the gateway lets 48 requests into each
# server, holds at most 50 of each tenant, and lets the tenants take turns.

# %%
fair = noisy.replace(
    tenants=[workload.Tenant(name=name, queue_max=50) for name in ("gold", "silver", "bronze")],
    gateway=gateway.Gateway(
        limit=gateway.WorkerBudget(cap_per_worker=48),
        bands=gateway.Band(fairness="deficit_round_robin"),
    ),
)
cured = spillway.simulate(fair, seeds=SEEDS)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
cured.plot.over_time("p95_ttft_ms", "tenant", bins=48, log=True, ax=left)
ax = plots.intervals({"no gateway": sick, "gateway": cured}, "goodput", "tenant", ax=right)

# %%
before, after = sick.by_tenant(), cured.by_tenant()
shed = 1 - after["bronze"]["completed"].mean / after["bronze"]["offered"].mean
noisy_words = (
    f"gold from {before['gold']['goodput'].mean:.0%} to {after['gold']['goodput'].mean:.0%}, "
    f"silver from {before['silver']['goodput'].mean:.0%} to {after['silver']['goodput'].mean:.0%}"
)
Markdown(
    f"With the queues, bronze waits for itself: {shed:.0%} of its requests are shed, and the share "
    f"in time rises for {noisy_words}."
)

# %% [markdown]
# ## 2. A retry storm
#
# Two servers work at three quarters of their capacity; a burst of 15 s follows.
# Clients withdraw a request that has no first token after 5 s, and may retry it.

# %%
STORM_S = (60, 75)


def surged(retries):
    return spillway.Simulation(
        workload=workload.Synthetic(
            clients=[
                workload.Client(name="usual", requests_per_s=70, duration_s=240),
                workload.Client(
                    name="burst",
                    requests_per_s=140,
                    start_s=STORM_S[0],
                    duration_s=STORM_S[1] - STORM_S[0],
                ),
            ]
        ),
        slo_classes=workload.SloClass(target_ttft_s=1),
        reaction=workload.Reaction(first_token_timeout_s=5, retries=retries),
        router="least_loaded",
        instances=instance.InstanceGroup(count=2),
    )


RETRIES = {
    "no retries": [],
    "4 retries": [workload.Retry(max_attempts=5)],
    "4 retries, longer waits": [workload.Retry(max_attempts=5, backoff_s=5, jitter="full")],
    "4 retries, budget of 10%": [workload.Retry(max_attempts=5, budget_ratio=0.1)],
}
storms = dict(
    zip(
        RETRIES,
        spillway.run_many([surged(rules) for rules in RETRIES.values()], SEEDS, keep_requests=True),
        strict=True,
    )
)
ax = plots.over_time(storms, "goodput", bins=48)
burst = ax.axvspan(*STORM_S, color="gray", alpha=0.2, linewidth=0)

# %%
print(f"{'':26}attempts per request  goodput after  recovered after (s)")
after_storm = {}
for name, results in storms.items():
    found = [result.recovery(*STORM_S) for result in results]
    after_storm[name] = np.mean([one.after for one in found])
    ledgers = [result.ledger for result in results]
    attempts = np.mean([one["attempts"] / one["logical_requests"] for one in ledgers])
    took = [one.recovered_after_s for one in found]
    words = "never" if None in took else f"{max(took):.0f}"
    print(f"{name:26}{attempts:20.2f}  {after_storm[name]:13.0%}  {words:>19}")

# %% [markdown]
# A request that times out has used capacity and comes back, so the load stays above the capacity
# long after the burst: the overload feeds itself.
# A retry budget bounds the load: at most one retry per ten requests.
#
# ## 3. A death spiral
#
# Two small GPUs get more load than they can serve.
# A controller limits the requests in flight: every 5 s it reads the p99 of the time to first token,
# and halves the limit above 2 s.
# Requests wait in the gateway for at most 30 s.

# %%
TIMEOUT = "gateway.bands[0].queue.timeout_s"
spiral = presets.get("toy-plant").apply(
    spillway.Simulation(
        instances=vllm_on_eks.toy_plant().instances,
        gateway=gateway.Gateway(
            bands=gateway.Band(
                fairness="deficit_round_robin", queue=gateway.Queue(max_requests=16, timeout_s=30)
            ),
            limit=gateway.WorkerBudget(cap_per_worker=16, workers=2),
            controller=gateway.Aimd(target_s=2, band=0, decrease="factor", decrease_factor=0.5),
            guard=gateway.Guard(floor=1, ceiling=64, cooldown_ticks=0),
            sensor=signals.Sensor(source="ttft", quantile=0.99, window_s=30, tick_s=5),
        ),
        metrics={"timeline_step_s": 1},
    )
)
attempts = {
    "timeout of 30 s": spiral,
    "timeout of 30 s, floor of 16": spiral.with_({"gateway.guard.floor": 16}),
    "timeout of 1 s": spiral.with_({TIMEOUT: 1}),
}
spirals = {name: spillway.simulate(one, seeds=SEEDS) for name, one in attempts.items()}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
plots.over_time(spirals, "permits", ax=left)
ax = plots.over_time(spirals, "sensor", ax=right)
right.legend_.remove()

# %%
for name, results in spirals.items():
    figures = results.summary()
    print(
        f"{name:30} p99 of TTFT {figures['p99_ttft_ms'].mean / 1000:4.1f} s, "
        f"goodput {figures['goodput']}, {figures['output_throughput'].mean:.0f} tokens/s"
    )

# %% [markdown]
# The controller cuts the limit, so requests wait longer *in the gateway*, so the p99 rises, so it
# cuts again, until two requests are in flight on two nearly idle GPUs.
# A floor only changes where the spiral ends.
# A timeout below the target bounds the wait at any limit, so the signal shows the engines again.
#
# ## 4. Herding
#
# Eight servers near their capacity, and a router that sends each request to the server with the
# shortest queue.
# It reads the queues from a scrape, once a second.


# %%
def routed(load):
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=840,
            duration_s=40,
            clients=workload.Client(
                prefix_group="shared",
                prefix_tokens=512,
                input_tokens=workload.Fixed(tokens=256),
                output_tokens=workload.Fixed(tokens=128),
            ),
        ),
        slo_classes=workload.SloClass(target_ttft_s=0.5),
        router=router.Weighted(
            scorers=router.QueueDepth(load=load), picker=router.Best(ties="random")
        ),
        signals=signals.Scraped(period_s=1),
        instances=profiles.BLIS_SERVER.replace(count=8),
    )


herds = {load: spillway.simulate(routed(load), seeds=SEEDS) for load in ("waiting", "effective")}
figure = herds["waiting"].plot.instances(bins=np.arange(10, 20.1, 0.1))

# %% [markdown]
# Until the next scrape, the same few servers look best to every request.
# The cure needs no fresher data: the router counts the requests that it has sent itself
# (`load="effective"`).

# %%
figure = herds["effective"].plot.instances(bins=np.arange(10, 20.1, 0.1))

# %%
for load, results in herds.items():
    figures = results.summary()
    print(f"{load:10} p99 of TTFT {figures['p99_ttft_ms']} ms, goodput {figures['goodput']}")

# %% [markdown]
# ## The four cures

# %%
PAIRS = {
    "noisy neighbor": (sick, cured),
    "retry storm": (storms["4 retries"], storms["4 retries, budget of 10%"]),
    "death spiral": (spirals["timeout of 30 s"], spirals["timeout of 1 s"]),
    "herding": (herds["waiting"], herds["effective"]),
}
rows = {
    f"{name}: {state}": results
    for name, pair in PAIRS.items()
    for state, results in zip(("failing", "cured"), pair, strict=True)
}
ax = plots.intervals(rows, "goodput")

# %%
Markdown(
    f"**So set**\n\n"
    f"- against a noisy neighbor: a limit below what the servers batch "
    f"(`gateway.limit[0].cap_per_worker`), a fair order (`gateway.bands[0].fairness`) and a bound "
    f"for each tenant's queue (`tenants[…].queue_max`): {noisy_words} in time;\n"
    f"- against a retry storm: `reaction.retries[…].budget_ratio` to 0.1, in your clients: goodput "
    f"after the burst is {after_storm['4 retries, budget of 10%']:.0%} instead of "
    f"{after_storm['4 retries']:.0%};\n"
    f"- against a death spiral: `gateway.bands[0].queue.timeout_s` to less than the target of the "
    f"controller: goodput is {goodput(spirals['timeout of 1 s'])} instead of "
    f"{goodput(spirals['timeout of 30 s'])};\n"
    f"- against herding: `load` of the scorer `queue_depth` to `effective`: goodput is "
    f"{goodput(herds['effective'])} instead of {goodput(herds['waiting'])}."
)
