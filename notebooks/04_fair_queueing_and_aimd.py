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
# # Fair queues and an adaptive limit: what makes them work?
#
# A gateway in front of two small GPUs limits the number of requests in flight, divides the permits
# between tenants, and adapts their number to the time to first token.
# [vllm-on-eks](https://github.com/Nicolas-Richard/vllm-on-eks) is such a gateway, and its
# [blog](https://nicolas-richard.github.io) describes how its settings evolved.
# This notebook repeats that process in simulation:
#
# - What does fair queueing buy, and at what cost?
# - How many requests should be in flight, and can a controller find that number?
# - Which settings break the controller, and why?

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.ticker import NullLocator

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # fewer seeds, for the tests
SEEDS = range(2) if FAST else range(10)

# %%
import spillway
from spillway import presets, workload
from spillway.gateway import (
    Aimd,
    Band,
    DeficitRoundRobin,
    Gateway,
    GlobalFifo,
    Guard,
    Queue,
    StaticLimit,
    WorkerBudget,
)
from spillway.instance import InstanceGroup, ProcessorSharing
from spillway.metrics import Metrics
from spillway.report import plots
from spillway.signals import Sensor
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

# %% [markdown]
# ## The fleet
#
# The two GPUs are modeled as one plant, a table of measurements: the end-to-end latency and the
# time to first token of a request with 512 prompt tokens and 128 output tokens, by the number of
# requests in service.
# (The values were read off the blog's plots and are interpolated.
# So this notebook is about the logic of the gateway, not about the last millisecond.)

# %%
plant = ProcessorSharing()
WORKERS = 2

in_service = np.arange(1, 401)
throughput = in_service / np.interp(in_service, plant.concurrency, plant.e2e_s)
best = in_service[np.argmax(throughput)]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(in_service, throughput)
left.axvline(best, color="black", linestyle=":", linewidth=1)
left.set(xlabel="requests in service", ylabel="throughput (requests/s)", ylim=(0, None))
right.plot(plant.concurrency, plant.ttft_s, marker="o", markersize=4)
right.axhline(2, color="black", linestyle=":", linewidth=1, label="target: 2 s")
right.set(xlabel="requests in service", ylabel="time to first token (s)", yscale="log")
right.yaxis.set_major_formatter("{x:g}")
right.legend(fontsize="small")
for ax in (left, right):
    ax.grid(alpha=0.3)
print(f"highest throughput: {throughput.max():.2f} requests/s with {best} requests in service")

# %% [markdown]
# Up to about 128 requests in service, throughput rises with their number.
# Beyond that, additional requests only wait for their first token.
#
# ## The gateway
#
# Every request passes through the queue of its tenant, even when permits are free.
# Deficit round robin serves the queues in turn, by weight: A has 2, B has 1.
# `verbatim` is the drain loop of that gateway, including its quirks.
# The limit counts requests from dispatch to last token: cap per worker times workers.

# %%
static = Gateway(
    bands=[
        Band(
            fairness=DeficitRoundRobin(semantics="verbatim"),
            queue=Queue(max_requests=8, timeout_s=30),
        )
    ],
    limit=[WorkerBudget(cap_per_worker=16, workers=WORKERS)],
)


def before(gateway, scenario="toy-plant", **queue_max):
    """The gateway in front of the plant, under a named load; `queue_max` by tenant."""
    simulation = presets.get(scenario).apply(
        spillway.Simulation(
            gateway=gateway,
            instances=[InstanceGroup(plant=plant)],
            metrics=Metrics(timeline_step_s=1),
        )
    )
    return simulation.replace(
        tenants=[one.replace(queue_max=queue_max.get(one.name)) for one in simulation.tenants]
    )


def draw(ax, time_s, values, number, label, **more):
    """A line over time in the style of that number."""
    ax.plot(time_s, values, label=label, **plots.STYLES[number], **more)


# %% [markdown]
# ## Idle capacity is used, contended capacity is shared by weight
#
# B has the fleet to itself, A joins for a minute, then B is alone again.
# One run has fair queues; the other has a single queue, first come, first served.

# %%
SCENARIO = "work-conservation-priority"
JOINS_S, LEAVES_S, SMOOTH_S = 60, 120, 10
fair = before(static, SCENARIO)
fifo = fair.with_({"gateway.bands[0].fairness": GlobalFifo()})

fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
shares = {}
for ax, (name, simulation) in zip(
    axes, {"deficit round robin": fair, "first come, first served": fifo}.items(), strict=True
):
    results = spillway.simulate(simulation, seeds=SEEDS)
    timelines = [one.timeline for one in results]
    rows = min(len(one["time_s"]) for one in timelines)
    dispatched = np.mean([one["dispatched"][:rows] for one in timelines], axis=0)
    time_s = timelines[0]["time_s"][:rows:SMOOTH_S]
    for number, tenant in enumerate("AB"):
        rate = np.diff(dispatched[::SMOOTH_S, number]) / SMOOTH_S
        ax.stairs(rate, time_s, baseline=None, label=tenant, **plots.STYLES[number])
    ax.axvspan(JOINS_S, LEAVES_S, color="black", alpha=0.07, linewidth=0)
    ax.set(title=name, xlabel="time (s)", xlim=(0, 200))
    ax.grid(alpha=0.3)
    both = (dispatched[LEAVES_S - 2] - dispatched[JOINS_S + 10]) / (LEAVES_S - 2 - JOINS_S - 10)
    alone = (dispatched[JOINS_S - 2] - dispatched[15]) / (JOINS_S - 2 - 15)
    shares[name] = both[0] / both[1]
    print(
        f"{name:25} B alone {alone[1]:.2f} requests/s; together A {both[0]:.2f}, B {both[1]:.2f}: "
        f"{both[0] / both[1]:.1f} : 1"
    )
axes[0].set(ylabel="dispatched (requests/s)", ylim=(0, None))
legend = axes[0].legend(title="tenant")

# %% [markdown]
# Alone, B gets the whole throughput of the limit, three times its share beside A.
# No permit is held in reserve.
# When A joins, the shares are 2 : 1 immediately, although A offers less load than B.
# With first come, first served, two tenants that keep equal queues full get about the same
# throughput, whatever their weights.
#
# ## How many requests in flight?
#
# Now an overload: B sends 6 requests/s from the start, A sends 4 from 60 s on.
# Together that is 10 requests/s, while the fleet can serve fewer than 6.
# Each point is a static limit, the budget of permits.

# %%
BUDGETS = (16, 32, 64, 128, 256, 400)
overload = before(static, A=8, B=2)
CAP = "gateway.limit[worker_budget].cap_per_worker"
TIMEOUT = "gateway.bands[0].queue.timeout_s"
runs = spillway.run_many(
    [overload.with_({CAP: budget // WORKERS}) for budget in BUDGETS], seeds=SEEDS
)
by_budget = dict(zip(BUDGETS, runs, strict=True))

fig, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
plots.sweep(by_budget, by="tenant", setting="budget (permits)", log="xy", ax=axes[0])
plots.sweep(by_budget, "output_throughput", setting="budget (permits)", log="x", ax=axes[1])
plots.sweep(by_budget, "goodput", setting="budget (permits)", log="x", ax=axes[2])
best_static = max(by_budget, key=lambda one: by_budget[one].summary()["goodput"].mean)
print(f"best goodput at {best_static} permits: {by_budget[best_static].summary()['goodput']}")

# %% [markdown]
# The tail of the time to first token is U-shaped.
# With a small budget requests wait at the gateway, with a large one in the engines.
# Goodput is the share of all offered requests with a first token within 2 s.
# It has a peak, which throughput does not show: throughput hardly falls beyond it.
# (Throughput is averaged over the time until the last request has left, which costs the largest
# budgets little.)
# The best budget depends on the model, the GPU and the lengths, so a controller should find it.
#
# ## The controller, and its death spiral
#
# Every 5 s the controller reads the p99 of the time to first token over the last 30 s.
# Below 2 s it adds a permit per worker; above 2 s it halves the cap.
# These settings are close to those of that gateway's first deployment:

# %%
first_deployed = Gateway(
    bands=[
        Band(
            fairness=DeficitRoundRobin(semantics="verbatim"),
            queue=Queue(max_requests=16, timeout_s=30),
        )
    ],
    limit=[WorkerBudget(cap_per_worker=16, workers=WORKERS)],
    controller=Aimd(target_s=2, band=0, decrease="factor", decrease_factor=0.5),
    guard=Guard(floor=1, ceiling=64, cooldown_ticks=0),
    sensor=Sensor(source="ttft", quantile=0.99, window_s=30, tick_s=5),
)
spiral = before(first_deployed)
attempts = {
    "as first deployed": spiral,
    "+ band 0.2, cooldown 3, floor 16": spiral.with_(
        {
            "gateway.controller.band": 0.2,
            "gateway.guard.cooldown_ticks": 3,
            "gateway.guard.floor": 16,
        }
    ),
    "instead: timeout 1 s": spiral.with_({TIMEOUT: 1}),
}

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 4.6), layout="constrained", sharex=True)
spirals = {}
for number, (name, simulation) in enumerate(attempts.items()):
    results = spirals[name] = spillway.simulate(simulation, seeds=SEEDS)
    timeline, control = results[0].timeline, results[0].control
    draw(top, timeline["time_s"], timeline["permits"], number, name)
    draw(bottom, control["time_s"], control["value"], number, None, marker=".")
    figures = results.summary()
    print(
        f"{name:33} p99 of TTFT {figures['p99_ttft_ms'].mean / 1000:4.1f} s, "
        f"goodput {figures['goodput'].mean:6.1%}, {figures['output_throughput'].mean:4.0f} tokens/s"
    )
top.set(ylabel="permits", ylim=(0, None), xlim=(0, 300))
top.legend(fontsize="small")
bottom.axhline(2, color="black", linestyle=":", linewidth=1)
bottom.set(xlabel="time (s)", ylabel="p99 of TTFT (s)", yscale="log", ylim=(1, 40))
bottom.set_yticks([1, 2, 5, 10, 20, 40], labels=["1", "2", "5", "10", "20", "40"])
bottom.yaxis.set_minor_locator(NullLocator())
for ax in (top, bottom):
    ax.grid(alpha=0.3)

# %% [markdown]
# The controller cuts the limit, so requests wait longer at the gateway, so the p99 rises, so the
# controller cuts again.
# Soon two requests are in flight on two GPUs that are almost idle.
# Then a window has fewer than 10 samples: the sensor reports no value, and the limit never
# recovers.
#
# A floor only changes where the spiral ends.
# A full queue of $q$ requests makes a tenant with the share $\varphi$ of the throughput $X$ wait
# $W = \min(T, q / \varphi X)$, where $T$ is the queue's timeout.
# As long as $W$ plus the engines' own time to first token exceeds the target at the floor, the
# limit stays there.
# A timeout below the target bounds $W$ at any limit:
# requests that would wait longer are rejected, and the signal reflects the engines again.
#
# ## The timeout decides
#
# So the timeout must be short, but how short?
# The limit starts far too low, at 32 permits, and should climb.

# %%
searching = Gateway(
    bands=[
        Band(
            fairness=DeficitRoundRobin(semantics="verbatim"),
            queue=Queue(max_requests=8, timeout_s=1),
        )
    ],
    limit=[WorkerBudget(cap_per_worker=16, workers=WORKERS)],
    controller=Aimd(target_s=2, band=0.2, decrease="factor", decrease_factor=0.75),
    guard=Guard(floor=16, ceiling=128, cooldown_ticks=3),
    sensor=Sensor(source="ttft", quantile=0.99, window_s=30, tick_s=5),
)
TIMEOUTS_S = (0.25, 0.5, 0.75, 1, 1.5, 2, 5)
SHOWN_S = (0.5, 1, 2)
low = before(searching, A=8, B=2)
by_timeout = {}
for band in (0.2, 0):
    runs = spillway.run_many(
        [low.with_({TIMEOUT: one, "gateway.controller.band": band}) for one in TIMEOUTS_S],
        seeds=SEEDS,
    )
    by_timeout[band] = dict(zip(TIMEOUTS_S, runs, strict=True))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for number, timeout_s in enumerate(SHOWN_S):
    timeline = by_timeout[0.2][timeout_s][0].timeline
    draw(left, timeline["time_s"], timeline["permits"], number, f"timeout {timeout_s:g} s")
left.set(xlabel="time (s)", ylabel="permits", xlim=(0, 300), ylim=(0, None))
left.legend(fontsize="small", title="band 0.2", title_fontsize="small")
left.grid(alpha=0.3)
for band, results in by_timeout.items():
    plots.sweep(
        results, "goodput", setting="queue timeout (s)", label=f"band {band:g}", log="x", ax=right
    )


def highest_permits(result):
    return float(result.timeline["permits"].max())


def last_permits(result):
    """The limit when the load ends."""
    return float(result.timeline["permits"][300])


print("             band 0.2: permits      band 0: permits")
print("timeout (s)  at most   in the end   at most   in the end")
for timeout_s in TIMEOUTS_S:
    at_most_and_last = [
        f"{by_timeout[band][timeout_s].interval(figure).mean:{width}.0f}"
        for band in (0.2, 0)
        for figure, width in ((highest_permits, 7), (last_permits, 13))
    ]
    print(
        f"{timeout_s:11g}  {at_most_and_last[0]}{at_most_and_last[1]}"
        f"   {at_most_and_last[2]}{at_most_and_last[3]}"
    )

# %% [markdown]
# With 1.5 s or more, the limit ends at its floor: the death spiral again, only cushioned.
# With 1 s, it freezes far below the optimum.
# There, nearly all served requests have waited the full second; with the engines' half second,
# the p99 lies between 1.6 and 2.4 s, the *deadband*, in which the controller holds the limit.
# The controller sees no need to act, while most requests are rejected.
# The other line shows that the band is the cause: without it, the limit keeps climbing with the
# same timeout and is cut only where the engines alone take a second.
# With a band, the rule is $T < \tau (1 - b) - U$: target less band, less the engines' time to first
# token at the best budget, here about $2 \cdot 0.8 - 1 = 0.6$ s.
#
# ## The purpose of the deadband and the cooldown
#
# Then why have a band?
# And why does the controller wait for some ticks after a cut, its cooldown?
# The next figure starts from 128 permits, with queues of only two and one, so that the signal
# reflects mostly the engines.

# %%
QUEUES = {"A": 2, "B": 1}
responsive = searching.replace(
    limit=[WorkerBudget(cap_per_worker=64, workers=WORKERS)],
    guard=Guard(floor=8, ceiling=256, cooldown_ticks=3),
)
nervous = before(responsive, **QUEUES)
COOLDOWNS = (0, 3, 6)
MOVES = ("increase", "decrease")


def moves(result):
    """The number of ticks at which the controller asks for a move of the limit."""
    return float(sum(result.control.count(one) for one in MOVES))


fig, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
cooled = {}
print("band  cooldown  cuts by t = 120 s  moves       output tokens/s  goodput")
for ax, band in zip(axes, (0, 0.2), strict=True):
    for number, ticks in enumerate(COOLDOWNS):
        simulation = nervous.with_(
            {"gateway.controller.band": band, "gateway.guard.cooldown_ticks": ticks}
        )
        results = cooled[band, ticks] = spillway.simulate(simulation, seeds=SEEDS)
        timeline = results[0].timeline
        draw(ax, timeline["time_s"], timeline["permits"], number, f"cooldown {ticks} ticks")

        def early_cuts(result):
            control = result.control
            cuts = control["action"] == control.actions.index("decrease")
            return float((cuts & (control["time_s"] < 120)).sum())

        figures = results.summary()
        print(
            f"{band:4g}  {ticks:8}  {results.interval(early_cuts)!s:>17}  "
            f"{results.interval(moves)!s:>9}  {figures['output_throughput']!s:>16}  "
            f"{figures['goodput'].mean:7.1%}"
        )
    ax.set(title=f"band {band:g}", xlabel="time (s)", xlim=(0, 300), ylim=(0, None))
    ax.grid(alpha=0.3)
axes[0].set_ylabel("permits")
legend = axes[0].legend(fontsize="small")

# %% [markdown]
# A cut takes effect in the window only after the older samples have left it and the requests in
# flight have finished.
# Without a cooldown, the same bad samples trigger a cut at every tick, down to a fraction of the
# right limit; climbing back takes minutes.
# The window is 30 s and a tick is 5 s, so the cooldown must be 6 ticks to cover it; with 3, one
# breach usually still cuts twice.
#
# The band avoids moves: near the target the limit rests instead of climbing until the target is
# missed.
# With a cooldown, the band buys stability rather than goodput, at the risk of freezing the limit.
#
# ## What counts as demand?
#
# Under light load, every sample is good, and the limit climbs for no reason.
# A demand gate lets it rise only while there is demand.
# That gateway counts requests in flight *or* queued; the alternative counts queued ones only.
# There are two loads: ten quiet minutes of A and then half a minute of B at 30 requests/s, and a
# steady load that 64 permits cannot serve.

# %%
gated = searching.replace(
    limit=[WorkerBudget(cap_per_worker=32, workers=WORKERS)],
    guard=Guard(floor=16, ceiling=256, cooldown_ticks=3, demand="in_flight_or_queued"),
)


def client(tenant, requests_per_s, start_s, duration_s):
    return workload.Client(
        name=tenant,
        tenant=tenant,
        slo_class=vllm_on_eks.CLASS_OF[tenant],
        requests_per_s=requests_per_s,
        start_s=start_s,
        duration_s=duration_s,
        input_tokens=workload.Fixed(tokens=512),
        output_tokens=workload.Fixed(tokens=128),
    )


LOADS = {
    "quiet, then a burst": (client("A", 1, 0, 600), client("B", 30, 600, 30)),
    "steady pressure": (client("A", 1, 0, 300), client("B", 5, 0, 300)),
}
GATES = {
    "in flight or queued": {"gateway.guard.demand": "in_flight_or_queued"},
    "queued only": {"gateway.guard.demand": "queued_only"},
    "no gate": {"gateway.guard.demand_gate": False},
    "ceiling 64 per worker": {"gateway.guard.ceiling": 64},
}
fig, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
demanded = {}
for ax, (load, clients) in zip(axes, LOADS.items(), strict=True):
    base = before(gated, **QUEUES).replace(workload=workload.Synthetic(clients=clients))
    for number, (gate, settings) in enumerate(GATES.items()):
        results = demanded[load, gate] = spillway.simulate(base.with_(settings), seeds=SEEDS)
        timeline = results[0].timeline
        width = 4 if number == 0 else 1.5  # visible beneath another line
        draw(ax, timeline["time_s"], timeline["permits"], number, gate, linewidth=width)
        figures = results.summary()
        print(
            f"{load:20} {gate:21} p99 of TTFT {figures['p99_ttft_ms'].mean / 1000:4.1f} s, "
            f"goodput {figures['goodput'].mean:.1%}"
        )
    ax.set(title=load, xlabel="time (s)", ylim=(0, None))
    ax.grid(alpha=0.3)
axes[0].set_ylabel("permits")
legend = axes[0].legend(title="demand", fontsize="small")

# %% [markdown]
# Some request is nearly always in flight, so a gate that counts those hardly ever closes: the lines
# with and without it coincide.
# When the burst arrives, the limit no longer binds, and the p99 is many times the target.
# Counting only queued requests keeps the limit where it was.
# But queues of one or two are empty at most ticks, so under steady pressure the limit climbs too
# slowly.
# If the best limit of the fleet is roughly known, a ceiling near it achieves the purpose of the
# gate.
#
# ## The same on step-level engines
#
# The plant is a table of measurements by the number of requests in service.
# Do its results follow from a more basic model?
# `vllm_on_eks.l4().instances` is the same fleet as two engines with continuous batching, which
# model prompts, a KV memory of 38,400 tokens each, and the duration of a step.
# The duration of a step is fitted to published throughputs, the memory to published latencies
# (`tools/fit_l4.py`); queues, waits and the controller's moves follow.
#
# The load is the one above: B alone, A for a minute, B alone.
# The cap per worker is either fixed or the start of that post's controller (cuts in steps of 4,
# queues of 8 and 2, a timeout of 30 s).
# The blog's figures are dashboards, whose p99 is that of one minute, estimated from a histogram.
# The figures here are computed in the same way.

# %%
EDGES = [0, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20]
EDGES += [30, 45, 60, 90, 120, 180, 240, 300, 450, 600]
CAPS = (4, 8, 16, 32, 64, 128, 256)
PUBLISHED_TOKENS = (124, 235, 390, 565, 750, 700, 700)
PUBLISHED_S = {
    ("A", "fixed"): (np.nan, np.nan, 6, 4, 4, 44, 59),
    ("B", "fixed"): (np.nan, np.nan, 3, 2.5, 2.5, 30, 88),
    ("A", "start of AISD"): (19.5, 9.9, 7.4, 4.9, 4.9, 29.9, 29.9),
    ("B", "start of AISD"): (10, 7.4, 4.9, 4.5, 4.3, 29.7, 29.7),
}
STATIC = {"gateway.controller": "static"}


def on_engines(cap, how):
    loaded = presets.get(SCENARIO).apply(
        spillway.Simulation(
            instances=vllm_on_eks.l4().instances, metrics=Metrics(timeline_step_s=1)
        )
    )
    simulation = vllm_on_eks.post4().apply(loaded)
    # Starts below the floor of 16 had a lower floor.
    changes = STATIC if how == "fixed" else {"gateway.guard.floor": min(cap, 16)}
    return simulation.with_({CAP: cap, **changes})


def shown_p99_s(result, tenant):
    """The largest p99 of any minute."""
    mine = (result.requests["tenant"] == tenant) & np.isfinite(result.requests["ttft_s"])
    ttft_s = result.requests["ttft_s"][mine]
    first_s = result.requests["arrival_s"][mine] + ttft_s
    largest = 0
    for end_s in np.arange(30, first_s.max() + 60, 5):
        counts = np.histogram(ttft_s[(end_s - 60 < first_s) & (first_s <= end_s)], EDGES)[0]
        if counts.sum() >= 20:
            rank = 0.99 * counts.sum()
            largest = max(largest, np.interp(rank, [0, *counts.cumsum()], EDGES))
    return largest


def contended_tokens_per_s(result):
    """Throughput in the minute in which A is active too."""
    tokens = result.timeline["emitted_tokens"].sum(axis=1)
    start, end = np.searchsorted(result.timeline["time_s"], (JOINS_S, LEAVES_S))
    return (tokens[end] - tokens[start]) / (LEAVES_S - JOINS_S)


ways = ("fixed", "start of AISD")
cases = [(cap, how) for how in ways for cap in CAPS]
results = spillway.run_many(
    [on_engines(cap, how) for cap, how in cases], seeds=SEEDS, keep_requests=True
)
on_steps = dict(zip(cases, results, strict=True))


def over_caps(figure, how):
    """Medians over the seeds."""
    return [float(np.median([figure(result) for result in on_steps[cap, how]])) for cap in CAPS]


fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
draw(axes[0], CAPS, over_caps(contended_tokens_per_s, "fixed"), 0, "fixed")
axes[0].plot(CAPS, PUBLISHED_TOKENS, "o", color="black", fillstyle="none", label="published")
axes[0].set(ylabel="output tokens/s", ylim=(0, None))
shown_s = {}
for ax, tenant in zip(axes[1:], "AB", strict=True):
    for number, how in enumerate(ways):
        ours = over_caps(lambda result, tenant=tenant: shown_p99_s(result, tenant), how)
        shown_s[tenant, how] = dict(zip(CAPS, ours, strict=True))
        draw(ax, CAPS, ours, number, how)
        published_s = PUBLISHED_S[tenant, how]
        ax.plot(CAPS, published_s, "os"[number], color="black", fillstyle="none", label="published")
    ax.set(ylabel=f"p99 time to first token of {tenant} (s)", yscale="log", ylim=(1.5, 150))
    ax.yaxis.set_major_formatter("{x:g}")
for ax in axes:
    ax.set(xlabel="cap per worker", xscale="log")
    ax.set_xticks(CAPS, map(str, CAPS))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.3)
    ax.legend(fontsize="x-small")

# %%
aisd = "start of AISD"
in_engines_s = {
    cap: np.median(
        [np.nanpercentile(one.requests["scheduling_delay_s"], 95) for one in on_steps[cap, "fixed"]]
    )
    for cap in (64, 128)
}
Markdown(
    f"The engines reproduce the U: with too few permits, requests wait at the gateway; with too "
    f"many, they wait in the engines for KV memory, which about 64 requests fill "
    f"(p95: {in_engines_s[64]:.1f} s with 64 per "
    f"worker, {in_engines_s[128]:.0f} s with 128). From 64 to 128, throughput does not rise, "
    f"and A waits {shown_s['A', 'fixed'][128] / shown_s['A', 'fixed'][64]:.0f} times as long. "
    f"From a start at 256, the controller cuts B's p99 from {shown_s['B', 'fixed'][256]:.0f} to "
    f"{shown_s['B', aisd][256]:.0f} s (published: from 88 to 29.7 s). But that is due to its "
    f"ceiling, to which the first increase lowers the limit; and from a cap that is far too low, "
    f"the limit does not recover, because all requests wait longer than the target at the gateway."
)

# %% [markdown]
# ## All together
#
# The blog's final settings are short queues, a timeout of 1 s, a window of 10 s, and cuts by a
# quarter.
# An overview of the whole gateway:

# %%
final = Gateway(
    bands=[
        Band(
            fairness=DeficitRoundRobin(semantics="verbatim"),
            queue=Queue(max_requests=1, timeout_s=1),  # A has 2
        )
    ],
    limit=[WorkerBudget(cap_per_worker=64, workers=WORKERS)],
    controller=Aimd(target_s=2, band=0.2, decrease="factor", decrease_factor=0.75),
    guard=Guard(floor=32, ceiling=256, cooldown_ticks=3),
    sensor=Sensor(source="ttft", quantile=0.99, window_s=10, tick_s=5),
)
adaptive = before(final, **QUEUES)
adapted = spillway.simulate(adaptive, seeds=SEEDS)
figure = adapted[0].plot.gateway(figure=plt.figure(figsize=(10, 8), layout="constrained"))

# %% [markdown]
# The limit climbs while the p99 is below the band, rests within it, and falls by a quarter above.
# The queues hold three requests, so no request waits long; requests that do not fit are rejected
# immediately.
# (The gaps are ticks with fewer than 10 samples in the window.)
#
# However, the limit started at the best static budget.
# What if that is not known?
# Each point is a budget, once fixed and once as the start of the controller, with equal queues.

# %%
fixed = before(final.replace(controller=StaticLimit()), **QUEUES)
every = spillway.run_many(
    [one.with_({CAP: budget // WORKERS}) for one in (fixed, adaptive) for budget in BUDGETS],
    seeds=SEEDS,
)
by_fixed = dict(zip(BUDGETS, every[: len(BUDGETS)], strict=True))
by_start = dict(zip(BUDGETS, every[len(BUDGETS) :], strict=True))
ax = plots.sweep(by_fixed, "goodput", setting="budget (permits)", label="fixed", log="x")
plots.sweep(by_start, "goodput", setting="budget (permits)", label="start", log="x", ax=ax)
ax.figure.set_size_inches(7, 3.5)


def goodput(results):
    return results.summary()["goodput"].mean


best_fixed = max(by_fixed, key=lambda one: goodput(by_fixed[one]))
starts = [goodput(results) for results in by_start.values()]
frozen = by_timeout[0.2][1]
gate_open, gate_shut = (
    demanded["quiet, then a burst", gate] for gate in ("in flight or queued", "queued only")
)
cured = spirals["instead: timeout 1 s"]
Markdown(
    f"**Takeaway.** "
    f"Fair queues divide contended capacity by weight ({shares['deficit round robin']:.1f} : 1) "
    f"and reserve none. "
    f"The queue's timeout is the setting that matters most: with 30 s the controller starves "
    f"the fleet (goodput {goodput(spirals['as first deployed']):.0%}), with 1 s it does not "
    f"({goodput(cured):.0%}), but a deadband may freeze the limit too low, at "
    f"{frozen.interval(last_permits).mean:.0f} permits instead of the best {best_static}. "
    f"With a cooldown shorter than the window, one breach cuts twice. "
    f"A demand gate that counts requests in flight has no effect: after ten quiet minutes, a burst "
    f"sees a p99 of {gate_open.summary()['p99_ttft_ms'].mean / 1000:.0f} s instead of "
    f"{gate_shut.summary()['p99_ttft_ms'].mean / 1000:.1f} s. "
    f"With the blog's final settings, the controller does not beat the best static budget "
    f"({goodput(by_start[best_fixed]):.0%} against {goodput(by_fixed[best_fixed]):.0%}), but it "
    f"does not need to know it: goodput is between {min(starts):.0%} and {max(starts):.0%} from "
    f"any start in the figure, while the same budgets fixed give "
    f"{min(map(goodput, by_fixed.values())):.0%} to {goodput(by_fixed[best_fixed]):.0%}."
)
