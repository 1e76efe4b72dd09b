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
# # Which weights should a router have, and how fresh must its signals be?
#
# A router scores every instance and picks the best one.
# `prefix_affinity` favors instances that have cached the prompt's prefix,
# `queue_depth` those with a short queue, `kv_utilization` those with free KV blocks.
#
# - How do their weights trade off against each other?
# - What does it cost to read the queues from a scrape that is seconds old?
# - The log of decisions holds a *regret*. What does it show, and what does it miss?
#
# It takes about 20 s of processor time.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown

import spillway
from spillway import metrics, profiles, router, signals, workload
from spillway.report import plots

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
DURATION_S = 12 if FAST else 40
WARM_UP_S = 4 if FAST else 10
SEEDS = range(2) if FAST else range(5)

INSTANCES = 8
SHARED_TOKENS = 512
OWN_TOKENS = 256
OUTPUT_TOKENS = 128


def fleet(requests_per_s, groups=8, **instance_settings):
    """Eight servers; each group of clients shares one prefix."""
    clients = [
        workload.Client(
            name=f"group {i}",
            tenant=f"group {i}",
            prefix_group=f"group {i}",
            prefix_tokens=SHARED_TOKENS,
            input_tokens=workload.Fixed(tokens=OWN_TOKENS),
            output_tokens=workload.Fixed(tokens=OUTPUT_TOKENS),
        )
        for i in range(groups)
    ]
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=requests_per_s, duration_s=DURATION_S, clients=clients
        ),
        instances=profiles.BLIS_SERVER.replace(count=INSTANCES, **instance_settings),
        prefix_index={"capacity_blocks": 10_000},  # of each instance, as in BLIS
        warm_up_s=WARM_UP_S,
    )


def weighted(prefix=0, queue=0, kv=0, load="waiting"):
    """A weighted router with random tie-breaking; a weight of 0 omits a scorer."""
    scorers = []
    if prefix:
        scorers.append(router.PrefixAffinity(weight=prefix))
    if queue:
        scorers.append(router.QueueDepth(weight=queue, load=load))
    if kv:
        scorers.append(router.KvUtilization(weight=kv))
    return router.Weighted(scorers=scorers, picker=router.Best(ties="random"))


# %% [markdown]
# ## Where round robin begins to queue

# %%
RATES = (700, 760, 800, 840, 880)
runs = spillway.run_many([fleet(rate) for rate in RATES], seeds=SEEDS)
by_rate = dict(zip(RATES, runs, strict=True))
ax = plots.sweep(by_rate, "p99_ttft_ms", setting="offered (requests/s)")

# %% [markdown]
# The rest of this notebook uses 840 requests/s, at which round robin queues now and then.
#
# ## Which weights?
#
# The weight of `queue_depth` stays 1; that of `prefix_affinity` varies.
# Only the ratio matters.
#
# `queue_depth` scores the shortest queue 1 and the longest 0.
# So a queue, however long, costs an instance at most the weight of that scorer, `w_queue`.
# `prefix_affinity` scores the matched share of the prompt, `f`.
# A warm instance therefore beats every cold one as soon as `w_prefix * f > w_queue`.

# %%
RATE_PER_S = 840
loaded = fleet(RATE_PER_S)
round_robin = by_rate[RATE_PER_S]
matched = SHARED_TOKENS / (SHARED_TOKENS + OWN_TOKENS)
threshold = 1 / matched
print(f"f = {SHARED_TOKENS} / {SHARED_TOKENS + OWN_TOKENS} = {matched:.3f}")
print(f"the warm instance always wins if w_prefix / w_queue > {threshold:.2f}")

# %%
WEIGHTS = (0, 0.5, 1, 1.4, 1.6, 2, 3)
VARIANTS = {
    "queue_depth": {"queue": 1},
    "queue_depth, kv_utilization": {"queue": 1, "kv": 1},
    "queue_depth, effective load": {"queue": 1, "load": "effective"},
}


def over_weights(simulation):
    """The results of every variant at every weight of the prefix."""
    simulations = [
        simulation.replace(router=weighted(prefix=weight, **others))
        for others in VARIANTS.values()
        for weight in WEIGHTS
    ]
    every = iter(spillway.run_many(simulations, seeds=SEEDS))
    return {name: {weight: next(every) for weight in WEIGHTS} for name in VARIANTS}


def draw(curves):
    figure = plots.sweeps(
        curves, ["p99_ttft_ms", "cache_hit_rate"], setting="w_prefix / w_queue", log="y"
    )
    for ax in figure.axes:
        ax.axvline(threshold, color="gray", linestyle=":", linewidth=1)


few_groups = over_weights(loaded)
draw(few_groups)
print(f"round robin: p99 of TTFT {round_robin.summary()['p99_ttft_ms']} ms")

# %% [markdown]
# The dotted line is the threshold.
# Below it the weight hardly matters; above it the tail latency explodes.
# The gain is negligible: a group that overflows to another instance warms its cache too, and every
# instance has room for all eight prefixes.
#
# Above the threshold, no queue is long enough to send a group elsewhere.
# Each group stays on the instance that served its first request:

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
for ax, weight in zip(axes, (1.4, 1.6), strict=True):
    result = spillway.simulate(loaded.replace(router=weighted(prefix=weight, queue=1)), seed=0)
    result.plot.placement(ax=ax)
    ax.set_title(f"weights {weight:g} : 1")

# %% [markdown]
# `load="effective"` also counts running requests and those in flight to the instance.
# Its scores differ between instances from the first decisions on, so each group gets an instance of
# its own.
# That works only because there are as many equal groups as instances: above the threshold, this
# scorer cannot move a group either.
#
# Why does `kv_utilization` not help?
# A waiting request holds no KV blocks, so this scorer does not see queues.
#
# ### When affinity pays off
#
# Now there are 256 groups instead of 8, and each instance has KV memory for a fraction of their
# prefixes.

# %%
GROUPS, RATE_OF_MANY_PER_S, KV_BLOCKS = 256, 600, 6_000
many = fleet(RATE_OF_MANY_PER_S, groups=GROUPS, num_kv_blocks=KV_BLOCKS)
needed = GROUPS * SHARED_TOKENS / loaded.instances[0].block_size_tokens
print(f"all prefixes together: {needed:,.0f} blocks; an instance has {KV_BLOCKS:,}")

many_groups = over_weights(many)
draw(many_groups)
alone = spillway.simulate(many.replace(router=weighted(prefix=1)), seeds=SEEDS)
print(f"prefix_affinity alone: p99 of TTFT {alone.summary()['p99_ttft_ms']} ms")

# %% [markdown]
# Here, spreading a group loses its cached prefix, and the weight that caused the cliff is the cure.
# Below the threshold, more weight helps gradually; at the threshold, all at once.
# Affinity alone has the same hit rate, but its random placement is poor under some seeds:
# hence the wide interval.
#
# So the sign of the effect depends on the workload, but the threshold does not:
# it is `w_queue / f`, and `f` is a property of the prompts.
#
# ## What does a scrape interval cost?
#
# Back to eight groups at the same rate, without affinity.
# The gateway now scrapes the instances periodically, and a decision sees the last scrape.
# Three routers are compared:
#
# - `queue_depth(load="waiting")` reads the length of the queue from the scrape;
# - `queue_depth(load="effective")` adds to the scraped values the requests in flight, which the
#   router counts itself and which are always current;
# - `kv_utilization` reads the KV blocks in use from the scrape.

# %%
PERIODS_S = (0.001, 0.2, 5) if FAST else (0.001, 0.005, 0.02, 0.05, 0.2, 0.5, 1, 2, 5)
ROUTERS = {
    "queue_depth, waiting": weighted(queue=1),
    "queue_depth, effective": weighted(queue=1, load="effective"),
    "kv_utilization": weighted(kv=1),
}
every = iter(
    spillway.run_many(
        [
            loaded.replace(router=policy, signals=signals.Scraped(period_s=period))
            for policy in ROUTERS.values()
            for period in PERIODS_S
        ],
        seeds=SEEDS,
    )
)
scraped = {name: {period: next(every) for period in PERIODS_S} for name in ROUTERS}
figure = plots.sweeps(scraped, ["p99_ttft_ms"], setting="time between two scrapes (s)", log="xy")

# %% [markdown]
# Between two scrapes, the two routers that only read the scrape see the same values for every
# request.
# So every request has the same best instance, and sending requests there does not change the
# scores: they herd.
# With a scrape every second:

# %%
PERIOD_S, BIN_S = 1.0, 0.1
edges = WARM_UP_S + BIN_S * np.arange(61)
figure = plt.figure(figsize=(8.5, 9), layout="constrained")
busiest = {}
for part, (name, policy) in zip(figure.subfigures(len(ROUTERS)), ROUTERS.items(), strict=True):
    result = spillway.simulate(
        loaded.replace(router=policy, signals=signals.Scraped(period_s=PERIOD_S)), seed=0
    )
    result.plot.instances(bins=edges, figure=part)
    part.suptitle(name, x=0, ha="left")
    columns = result.requests
    counts = np.histogram2d(
        columns["instance"], columns["arrival_s"], bins=[np.arange(INSTANCES + 1) - 0.5, edges]
    )[0]
    busiest[name] = (counts.max(axis=0) / counts.sum(axis=0)).mean()
for name, share in busiest.items():
    print(f"{name:23} the busiest in {BIN_S:g} s gets {share:.0%} (even: {1 / INSTANCES:.1%})")

# %% [markdown]
# The length of the queue herds less than KV utilization only because it ties:
# all instances with an empty queue at the last scrape share the load until the next one.
# KV utilization hardly ever ties, so one instance gets nearly all requests.
# It does badly even with a scrape every millisecond: the engine allocates blocks when it schedules
# a request, not when the router sends it.
#
# The router that counts requests in flight corrects itself with every request it sends.
# A stale scrape adds a constant offset until the next one; it shifts the balance but cannot cause
# herding.
#
# ## What does regret show, and what does it miss?
#
# `metrics.traced_candidates` keeps the best candidates of every decision.
# The regret of a decision is the best score less the score of the chosen instance.

# %%
STALE = signals.Scraped(period_s=5)
traced = loaded.replace(metrics=metrics.Metrics(traced_candidates=4))
CASES = {
    "queue_depth, live": {"router": weighted(queue=1)},
    "queue_depth, scraped every 5 s": {"router": weighted(queue=1), "signals": STALE},
    "round robin": {"router": "round_robin"},
}
explained = {
    name: spillway.simulate(traced.replace(**changes), seed=0) for name, changes in CASES.items()
}
print(f"{'':32}  mean regret  decisions with regret  oldest signal (s)  p99 of TTFT (ms)")
for name, result in explained.items():
    decisions = result.decisions
    print(
        f"{name:32}  {decisions['regret'].mean():11.2f}  {(decisions['regret'] > 0).mean():21.0%}  "
        f"{decisions['candidate_age_s'].max():17.2f}  {result.summary()['p99_ttft_ms']:16,.0f}"
    )
stale = explained["queue_depth, scraped every 5 s"]
assert stale.decisions["regret"].max() == 0

# %% [markdown]
# The router with signals five seconds old has no regret at all.
# It picked the highest score, and regret measures nothing else: it judges the choice by the score,
# not the score by the outcome.
# Round robin has no scores, so its regret is measured in effective load; half of its decisions have
# regret, yet it serves requests much faster.
# The decision for the request with the longest wait:

# %%
columns = stale.requests
print(stale.why(columns["request_id"][np.nanargmax(columns["ttft_s"])]))

# %% [markdown]
# The columns `waiting` and `running` have the age given in the last column.
# `in flight` is current, and it shows load that the score does not include.
# So the log reveals a stale decision by the signals that it was based on, not by its regret.


# %%
def p99(results):
    ms = results.summary()["p99_ttft_ms"].mean
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


few, several = few_groups["queue_depth"], many_groups["queue_depth, effective load"]
waiting, effective, _ = (list(by_period.values()) for by_period in scraped.values())
worst = max(effective, key=lambda results: results.summary()["p99_ttft_ms"].mean)
Markdown(
    f"Crossing `w_prefix * f = w_queue` (here at {threshold:.2f}) raises the p99 of TTFT from "
    f"{p99(few[1.4])} to {p99(few[1.6])} with 8 groups that fit in every cache, and lowers it from "
    f"{p99(several[1.4])} to {p99(several[1.6])} with {GROUPS} groups that fit in none. "
    f"From a scrape every {PERIODS_S[0] * 1000:g} ms to one every {PERIODS_S[-1]:g} s, the p99 "
    f"rises from {p99(waiting[0])} to {p99(waiting[-1])} with the scraped queue alone; with the "
    f"requests in flight it is at most {p99(worst)}. "
    f"Regret detects a picker that departs from its scores, never a score that is wrong.\n\n"
    f"**So set** `load` of `queue_depth` to `effective`, which makes the scrape interval matter "
    f"little; the weight of `prefix_affinity` below `w_queue / f` if all prefixes fit in every "
    f"cache, and above it if they do not and there are many more prefixes than instances."
)
