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
# # Which scorer weights, and how fresh must their signals be?
#
# A router scores every instance and picks the best one.
# `prefix_affinity` favors instances that have cached the prompt's prefix,
# `queue_depth` those with a short queue, `kv_utilization` those with free KV blocks.
#
# - How do their weights trade off against each other?
# - What does it cost to read the queues from a scrape that is seconds old?
# - The log of decisions holds a *regret*. What does it show, and what does it miss?

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
DURATION_S = 12 if FAST else 40
WARM_UP_S = 4 if FAST else 10
SEEDS = range(2) if FAST else range(5)

# %%
import spillway
from spillway import metrics, profiles, router, signals, workload
from spillway.report import plots

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


def largest_share(result):
    """The busiest instance's share of the completed requests."""
    completed = [one["completed"] for one in result.instances]
    return max(completed) / sum(completed)


# %% [markdown]
# ## Where round robin begins to queue
#
# Intervals in this notebook are 95 % confidence intervals over the seeds.

# %%
RATES = (700, 760, 800, 840, 880)
runs = spillway.run_many([fleet(rate) for rate in RATES], seeds=SEEDS)

print("requests/s  p50 of TTFT (ms)  p99 of TTFT (ms)  running per instance")
for rate, results in zip(RATES, runs, strict=True):
    figures = results.summary()
    # Little's law: the rate times the time from the first step to the last token.
    waited_ms = figures["mean_scheduling_delay_ms"].mean
    served_s = (figures["mean_e2el_ms"].mean - waited_ms) / 1000
    running = rate / INSTANCES * served_s
    p50, p99 = (str(figures[name]) for name in ("p50_ttft_ms", "p99_ttft_ms"))
    print(f"{rate:10}  {p50:>16}  {p99:>16}  {running:20.0f}")
most = runs[0][0].simulation.instances[0].max_num_seqs
print(f"an instance runs at most {most} requests at once (max_num_seqs)")

# %% [markdown]
# At the highest rates, the instances run close to their maximum number of requests.
# The rest of this notebook uses 840 requests/s, at which round robin queues now and then.

# %%
RATE_PER_S = 840
loaded = fleet(RATE_PER_S)
round_robin = runs[RATES.index(RATE_PER_S)]

# %% [markdown]
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
matched = SHARED_TOKENS / (SHARED_TOKENS + OWN_TOKENS)
threshold = 1 / matched
print(f"f = {SHARED_TOKENS} / {SHARED_TOKENS + OWN_TOKENS} = {matched:.3f}")
print(f"the warm instance always wins if w_prefix / w_queue > {threshold:.2f}")

# %%
WEIGHTS = (0, 0.5, 1, 1.4, 1.6, 2, 3)
EFFECTIVE = 'queue_depth(load="effective")'
VARIANTS = {
    "queue_depth": {"queue": 1},
    "queue_depth, kv_utilization": {"queue": 1, "kv": 1},
    EFFECTIVE: {"queue": 1, "load": "effective"},
}


def sweep(simulation):
    """The results of every variant at every weight."""
    simulations = [
        simulation.replace(router=weighted(prefix=weight, **others))
        for others in VARIANTS.values()
        for weight in WEIGHTS
    ]
    every = spillway.run_many(simulations, seeds=SEEDS)
    return {
        name: every[i * len(WEIGHTS) : (i + 1) * len(WEIGHTS)] for i, name in enumerate(VARIANTS)
    }


def tabulate(rows):
    """Prints the figures of named results."""
    print(f"{'':36}   p99 of TTFT (ms)  hit rate  largest share of one instance")
    for name, results in rows:
        figures = results.summary()
        print(
            f"{name:36}  {figures['p99_ttft_ms']!s:>17}  {figures['cache_hit_rate'].mean:8.4f}  "
            f"{results.interval(largest_share)!s:>15}"
        )


few_groups = sweep(loaded)
(alone,) = spillway.run_many([loaded.replace(router=weighted(prefix=1))], seeds=SEEDS)
tabulate(
    [
        ("round robin", round_robin),
        *(
            (f"{w:g} : 1  queue_depth", r)
            for w, r in zip(WEIGHTS, few_groups["queue_depth"], strict=True)
        ),
        *(
            (f"{w:g} : 1 : 1  queue_depth, kv", r)
            for w, r in zip(WEIGHTS, few_groups["queue_depth, kv_utilization"], strict=True)
        ),
        *(
            (f"{w:g} : 1  queue_depth, effective", r)
            for w, r in zip(WEIGHTS, few_groups[EFFECTIVE], strict=True)
            if w in (1.4, 1.6)
        ),
        ("prefix_affinity alone", alone),
    ]
)


# %%
def draw_errors(ax, positions, results, figure, **style):
    """Means with confidence intervals, clipped at a tenth of the mean for a logarithmic axis."""
    intervals = [one.summary()[figure] for one in results]
    means = np.array([one.mean for one in intervals])
    halves = np.array([one.half_width for one in intervals])
    low = np.minimum(halves, 0.9 * means)
    ax.errorbar(positions, means, yerr=[low, halves], capsize=3, markersize=5, **style)


def in_seconds(ax):
    """A logarithmic axis of milliseconds with readable labels."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda ms, _: f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s")
    )
    ax.grid(alpha=0.3)


def draw_sweep(swept, reference):
    """Two panels over the weight: the tail of the TTFT and the hit rate."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for style, marker, (name, results) in zip(plots.STYLES, "os^", swept.items(), strict=False):
        draw_errors(left, WEIGHTS, results, "p99_ttft_ms", marker=marker, label=name, **style)
        hits = [one.summary()["cache_hit_rate"].mean for one in results]
        right.plot(WEIGHTS, hits, marker=marker, markersize=5, **style)
    figures = reference.summary()
    left.axhline(figures["p99_ttft_ms"].mean, color="gray", linewidth=1, label="round robin")
    right.axhline(figures["cache_hit_rate"].mean, color="gray", linewidth=1)
    in_seconds(left)
    left.set(xlabel="w_prefix / w_queue", ylabel="p99 of TTFT")
    right.set(xlabel="w_prefix / w_queue", ylabel="prompt tokens found in cache", ylim=(0, 1))
    right.grid(alpha=0.3)
    for ax in (left, right):
        ax.axvline(threshold, color="black", linestyle=":", linewidth=1)
    right.annotate(
        "w_prefix · f = w_queue", (threshold, 0.05), xytext=(5, 0), textcoords="offset points"
    )
    fig.legend(loc="outside upper center", ncols=4, fontsize="small")


draw_sweep(few_groups, round_robin)

# %% [markdown]
# Below the threshold the weight hardly matters; above it the tail latency explodes.
# The gain is negligible:
# a group that overflows to another instance warms its cache too, and every instance has room for
# all eight prefixes.
# So round robin, with which every instance soon caches them all, has as high a hit rate as any.
#
# Above the threshold, no queue is long enough to send a group elsewhere.
# Each group stays on the instance that served its first request.
# `prefix_affinity` alone behaves the same with a worse start: without a queue score, even the first
# requests are placed at random.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for ax, weight in zip(axes, (1.4, 1.6), strict=True):
    result = spillway.simulate(loaded.replace(router=weighted(prefix=weight, queue=1)), seed=0)
    columns = result.requests
    group = np.char.replace(columns["tenant"].astype(str), "group ", "").astype(int)
    counts = np.zeros((8, INSTANCES))
    np.add.at(counts, (group, columns["instance"]), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    image = ax.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    ax.set(
        title=f"weights {weight:g} : 1",
        xlabel="instance",
        xticks=range(INSTANCES),
        yticks=range(8),
    )
    used = (counts.sum(axis=0) > 0).sum()
    print(
        f"{weight:g} : 1: {used} of {INSTANCES} instances are used, "
        f"the busiest gets {counts.sum(axis=0).max() / counts.sum():.0%} of the requests"
    )
axes[0].set_ylabel("prefix group")
bar = fig.colorbar(image, ax=axes, label="share of the group's requests", shrink=0.9)

# %% [markdown]
# Why does `kv_utilization` not help?
# A waiting request holds no KV blocks, so this scorer does not see queues.
# How far apart can two instances be?

# %%
servers = loaded.instances[0]
own_blocks = (OWN_TOKENS + OUTPUT_TOKENS) / servers.block_size_tokens
widest = servers.max_num_seqs * own_blocks / servers.num_kv_blocks
print(f"a full instance differs from an idle one by about {widest:.1%} of its KV blocks")
print(f"with kv_utilization at weight 1 the threshold is at most {(1 + widest) / matched:.2f}")

# %% [markdown]
# `load="effective"` also counts running requests and those in flight to the instance.
# Its scores differ between instances from the first decisions on, so each group gets an instance of
# its own.
# That works only because there are as many equal groups as instances: above the threshold, this
# scorer cannot move a group either.
#
# ### When affinity pays off
#
# Now there are 256 groups instead of 8, and each instance has KV memory for a fraction of their
# prefixes.

# %%
GROUPS, RATE_OF_MANY_PER_S, KV_BLOCKS = 256, 600, 6_000
many = fleet(RATE_OF_MANY_PER_S, groups=GROUPS, num_kv_blocks=KV_BLOCKS)
needed = GROUPS * SHARED_TOKENS / servers.block_size_tokens
print(f"all prefixes together: {needed:,.0f} blocks; an instance has {KV_BLOCKS:,}")

many_groups = sweep(many)
many_round_robin, many_alone = spillway.run_many(
    [many, many.replace(router=weighted(prefix=1))], seeds=SEEDS
)
draw_sweep(many_groups, many_round_robin)
tabulate(
    [
        ("round robin", many_round_robin),
        *(
            (f"{w:g} : 1  queue_depth, effective", r)
            for w, r in zip(WEIGHTS, many_groups[EFFECTIVE], strict=True)
            if w in (0, 1.4, 1.6)
        ),
        ("prefix_affinity alone", many_alone),
    ]
)

# %% [markdown]
# Here, spreading a group loses its cached prefix, and the weight that caused the cliff is the cure.
# With 256 groups, the load evens out between instances.
# Below the threshold, more weight helps gradually; at the threshold, all at once.
# Affinity alone has the same hit rate, but its random placement is poor under some seeds:
# hence the wide interval.
# (Intervals that would reach below zero are cut off on the logarithmic axis.)
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
    'queue_depth(load="waiting")': weighted(queue=1),
    'queue_depth(load="effective")': weighted(queue=1, load="effective"),
    "kv_utilization": weighted(kv=1),
}
every = spillway.run_many(
    [
        loaded.replace(router=policy, signals=signals.Scraped(period_s=period))
        for policy in ROUTERS.values()
        for period in PERIODS_S
    ],
    seeds=SEEDS,
)
scraped = {
    name: every[i * len(PERIODS_S) : (i + 1) * len(PERIODS_S)] for i, name in enumerate(ROUTERS)
}

fig, ax = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
for style, marker, (name, results) in zip(plots.STYLES, "os^", scraped.items(), strict=False):
    draw_errors(ax, PERIODS_S, results, "p99_ttft_ms", marker=marker, label=name, **style)
ax.axhline(
    round_robin.summary()["p99_ttft_ms"].mean, color="gray", linewidth=1, label="round robin"
)
in_seconds(ax)
ax.set_xscale("log")
ax.xaxis.set_major_locator(FixedLocator([0.001, 0.005, 0.02, 0.05, 0.2, 1, 5]))
ax.xaxis.set_minor_locator(NullLocator())
ax.xaxis.set_major_formatter(
    FuncFormatter(lambda s, _: f"{s * 1000:g} ms" if s < 1 else f"{s:g} s")
)
ax.set(xlabel="time between two scrapes", ylabel="p99 of TTFT")
legend = ax.legend(fontsize="small")

print(
    f"p99 of TTFT (ms) {'':18}"
    + "".join(f"{period:>11g} s" for period in PERIODS_S[:: 1 if FAST else 2])
)
for name, results in scraped.items():
    cells = [one.summary()["p99_ttft_ms"].mean for one in results[:: 1 if FAST else 2]]
    print(f"{name:35}" + "".join(f"{cell:13,.0f}" for cell in cells))

# %% [markdown]
# Between two scrapes, the two routers that only read the scrape see the same values for every
# request.
# So every request has the same best instance, and sending requests there does not change the
# scores: they herd.
# The figure shows where each request went.

# %%
PERIOD_S = 1.0
BIN_S = 0.1
FROM_S = WARM_UP_S
SHOWN_S = 6
fig, axes = plt.subplots(3, 1, figsize=(8.5, 6), layout="constrained", sharex=True)
concentration = {}
for ax, (name, policy) in zip(axes, ROUTERS.items(), strict=True):
    columns = spillway.simulate(
        loaded.replace(router=policy, signals=signals.Scraped(period_s=PERIOD_S)), seed=0
    ).requests
    shown = (columns["arrival_s"] >= FROM_S) & (columns["arrival_s"] < FROM_S + SHOWN_S)
    counts, _, _ = np.histogram2d(
        columns["instance"][shown],
        columns["arrival_s"][shown],
        bins=[
            np.arange(INSTANCES + 1) - 0.5,
            FROM_S + np.linspace(0, SHOWN_S, 1 + round(SHOWN_S / BIN_S)),
        ],
    )
    shares = counts / counts.sum(axis=0)
    concentration[name] = shares.max(axis=0).mean()
    image = ax.imshow(
        shares,
        vmin=0,
        vmax=1,
        cmap="Blues",
        aspect="auto",
        interpolation="nearest",
        extent=(FROM_S, FROM_S + SHOWN_S, INSTANCES - 0.5, -0.5),
    )
    ax.set(title=name, ylabel="instance", yticks=range(0, INSTANCES, 2))
    ax.title.set_fontsize("medium")
axes[-1].set_xlabel(f"arrival (s); scraped every {PERIOD_S:g} s")
bar = fig.colorbar(image, ax=axes, label=f"share of the requests in {BIN_S:g} s", shrink=0.7)
for name, share in concentration.items():
    print(f"{name:32} the busiest in {BIN_S:g} s gets {share:.0%} (even: {1 / INSTANCES:.1%})")

# %% [markdown]
# The length of the queue herds less than KV utilization only because it ties:
# all instances with an empty queue at the last scrape share the load until the next one.
# KV utilization hardly ever ties, so one instance gets nearly all requests.
# It does badly even with a scrape every millisecond:
# the engine allocates blocks when it schedules a request, not when the router sends it, and once an
# instance runs its maximum number of requests, a longer queue holds no more blocks.
#
# The router that counts requests in flight corrects itself with every request it sends.
# A stale scrape adds a constant offset until the next one; it shifts the balance but cannot cause
# herding.
# The period still matters a little, and the worst one lies in between.
# A request counts once until a scrape includes it and twice afterwards, and a finished request
# counts until the next scrape.
# At the longest periods, the scraped part hardly changes and the count in flight alone balances the
# load.
#
# ## What does regret show, and what does it miss?
#
# `metrics.traced_candidates` keeps the best candidates of every decision.
# The regret of a decision is the best score less the score of the chosen instance.

# %%
STALE = signals.Scraped(period_s=5)
traced = loaded.replace(metrics=metrics.Metrics(traced_candidates=4))
cases = {
    "queue_depth, live": traced.replace(router=weighted(queue=1)),
    "queue_depth, scraped every 5 s": traced.replace(router=weighted(queue=1), signals=STALE),
    "round robin": traced.replace(router=router.RoundRobin()),
}
explained = {name: spillway.simulate(simulation, seed=0) for name, simulation in cases.items()}

print(f"{'':32}  mean regret  decisions with regret  oldest signal (s)  p99 of TTFT (ms)")
for name, result in explained.items():
    decisions = result.decisions
    print(
        f"{name:32}  {decisions['regret'].mean():11.2f}  {(decisions['regret'] > 0).mean():21.0%}  "
        f"{decisions['candidate_age_s'].max():17.2f}  {result.summary()['p99_ttft_ms']:16,.0f}"
    )
assert explained["queue_depth, scraped every 5 s"].decisions["regret"].max() == 0

# %% [markdown]
# The router with signals five seconds old has no regret at all.
# It picked the highest score, and regret measures nothing else: it judges the choice by the score,
# not the score by the outcome.
# Round robin has no scores, so its regret is measured in effective load.
# Half of its decisions have regret, yet it serves requests much faster.
# Moreover, the regrets of two policies are in different units and cannot be compared.
#
# The decision for the request with the longest wait:

# %%
stale = explained["queue_depth, scraped every 5 s"]
columns = stale.requests
slowest = columns["request_id"][np.nanargmax(columns["ttft_s"])]
print(stale.why(slowest))

# %% [markdown]
# The columns `waiting` and `running` have the age given in the last column.
# `in flight` is current, and it shows load that the score does not include.
# So the log reveals a stale decision by the signals that it was based on, not by its regret.

# %%
print("requests in flight at the chosen instance, beyond the least loaded of the four candidates:")
for name, result in explained.items():
    decisions = result.decisions
    in_flight = decisions["candidate_in_flight"]
    chosen = decisions["candidate_instance"] == decisions["instance"][:, None]
    known = chosen.any(axis=1)
    excess = in_flight[chosen] - in_flight[known].min(axis=1)
    print(
        f"{name:32}  mean {excess.mean():7.1f}, p99 {np.quantile(excess, 0.99):7,.0f}  "
        f"({known.mean():.0%} of the decisions)"
    )

# %%
below, above = (
    few_groups["queue_depth"][WEIGHTS.index(w)].summary()["p99_ttft_ms"].mean for w in (1.4, 1.6)
)
many_below, many_above = (
    many_groups[EFFECTIVE][WEIGHTS.index(w)].summary()["p99_ttft_ms"].mean for w in (1.4, 1.6)
)
waiting, effective, _ = (
    [one.summary()["p99_ttft_ms"].mean for one in results] for results in scraped.values()
)


def duration(ms):
    """A time as text."""
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


Markdown(
    f"**Takeaway.** "
    f"Weights act through one threshold, `w_prefix * f = w_queue` (here at {threshold:.2f}): "
    f"crossing it raises the p99 of TTFT from {duration(below)} to {duration(above)} with 8 groups "
    f"that fit in every cache, and lowers it from {duration(many_below)} to "
    f"{duration(many_above)} with {GROUPS} groups that fit in none. "
    f"A router should count the requests that it has sent: from a scrape every "
    f"{PERIODS_S[0] * 1000:g} ms to one every {PERIODS_S[-1]:g} s, the p99 rises from "
    f"{duration(waiting[0])} to {duration(waiting[-1])} with the scraped queue alone, but "
    f"stays between {duration(min(effective))} and {duration(max(effective))} with the requests "
    f"in flight. "
    f"Regret detects a picker that departs from its scores, never a score that is wrong: it is "
    f"{stale.decisions['regret'].mean():.0f} for signals five seconds old with a p99 of "
    f"{duration(stale.summary()['p99_ttft_ms'])}, and "
    f"{explained['round robin'].decisions['regret'].mean():.2f} for round robin with one of "
    f"{duration(explained['round robin'].summary()['p99_ttft_ms'])}."
)
