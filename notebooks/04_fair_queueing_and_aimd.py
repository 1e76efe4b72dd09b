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
# # How many requests should be in flight, and can a controller find that number?
#
# A gateway in front of two small GPUs limits the number of requests in flight, divides the permits
# between tenants, and adapts their number to the time to first token.
# [vllm-on-eks](https://github.com/Nicolas-Richard/vllm-on-eks) is such a gateway, and its
# [blog](https://nicolas-richard.github.io) describes how its settings evolved.
# This notebook repeats that process in simulation:
#
# - What does fair queueing buy?
# - How many requests should be in flight?
# - Which settings break the controller, and why?
#
# It takes about 10 s of processor time.

# %%
import os

import matplotlib.pyplot as plt
from IPython.display import Markdown

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
    WorkerBudget,
)
from spillway.instance import InstanceGroup, ProcessorSharing
from spillway.metrics import Metrics
from spillway.report import plots
from spillway.signals import Sensor
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # fewer seeds, for the tests
SEEDS = range(2) if FAST else range(10)

# %% [markdown]
# ## The fleet and the gateway
#
# The two GPUs are modeled as one plant, a table of measurements: the end-to-end latency and the
# time to first token of a request with 512 prompt tokens and 128 output tokens, by the number of
# requests in service.
# (The values were read off the blog's plots and are interpolated.
# So this notebook is about the logic of the gateway, not about the last millisecond.)
#
# Every request passes through the queue of its tenant, even when permits are free.
# Deficit round robin serves the queues in turn, by weight: A has 2, B has 1.
# `verbatim` is the drain loop of that gateway, including its quirks.
# The limit counts requests from dispatch to last token: cap per worker times workers.

# %%
WORKERS = 2
static = Gateway(
    bands=Band(
        fairness=DeficitRoundRobin(semantics="verbatim"),
        queue=Queue(max_requests=8, timeout_s=30),
    ),
    limit=WorkerBudget(cap_per_worker=16, workers=WORKERS),
)


def before(gateway, scenario="toy-plant", **queue_max):
    """The gateway in front of the plant, under a named load; `queue_max` by tenant."""
    simulation = presets.get(scenario).apply(
        spillway.Simulation(
            gateway=gateway,
            instances=InstanceGroup(plant=ProcessorSharing()),
            metrics=Metrics(timeline_step_s=1),
        )
    )
    return simulation.replace(
        tenants=[one.replace(queue_max=queue_max.get(one.name)) for one in simulation.tenants]
    )


def goodput(results):
    return results.summary()["goodput"].mean


# %% [markdown]
# ## Idle capacity is used, contended capacity is shared by weight
#
# B has the fleet to itself, A joins from 60 s to 120 s, then B is alone again.
# One run has fair queues; the other has a single queue, first come, first served.

# %%
JOINS_S, LEAVES_S = 60, 120
fair = before(static, "work-conservation-priority")
orders = {
    "deficit round robin": fair,
    "first come, first served": fair.with_({"gateway.bands[0].fairness": GlobalFifo()}),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained", sharey=True)
shares = {}
print(f"{'':25} requests/s dispatched from {JOINS_S + 10} s to {LEAVES_S} s")
for ax, (name, simulation) in zip(axes, orders.items(), strict=True):
    results = spillway.simulate(simulation, seeds=SEEDS)
    results.plot.over_time("admitted", "tenant", bins=range(0, 200, 10), ax=ax)
    ax.set_title(name, loc="left", fontsize="medium")
    rates = []
    for tenant in "AB":
        columns = [result.timeline.of(tenant)["dispatched"] for result in results]
        rows = [dispatched[LEAVES_S] - dispatched[JOINS_S + 10] for dispatched in columns]
        rates.append(sum(rows) / len(rows) / (LEAVES_S - JOINS_S - 10))
    shares[name] = rates[0] / rates[1]
    print(f"{name:25} A {rates[0]:.2f}, B {rates[1]:.2f}: {shares[name]:.1f} : 1")

# %% [markdown]
# When A joins, the shares are 2 : 1 immediately, although A offers less load than B; alone, B gets
# the whole throughput of the limit.
# No permit is held in reserve.
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
CAP = "gateway.limit[worker_budget].cap_per_worker"
TIMEOUT = "gateway.bands[0].queue.timeout_s"
overload = before(static, A=8, B=2)


def over_budgets(simulation):
    runs = spillway.run_many(
        [simulation.with_({CAP: budget // WORKERS}) for budget in BUDGETS], seeds=SEEDS
    )
    return dict(zip(BUDGETS, runs, strict=True))


by_budget = over_budgets(overload)
figure = plots.sweeps(
    {"": by_budget},
    ["p99_ttft_ms", "output_throughput", "goodput"],
    setting="budget (permits)",
    log="xy",
)
best_static = max(by_budget, key=lambda budget: goodput(by_budget[budget]))
print(f"best goodput at {best_static} permits: {by_budget[best_static].summary()['goodput']}")

# %% [markdown]
# The tail of the time to first token is U-shaped.
# With a small budget requests wait at the gateway, with a large one in the engines.
# Goodput is the share of all offered requests with a first token within 2 s.
# It has a peak, which throughput does not show: throughput hardly falls beyond it.
# The best budget depends on the model, the GPU and the lengths, so a controller should find it.
#
# ## The controller, and its death spiral
#
# Every 5 s the controller reads the p99 of the time to first token over the last 30 s.
# Below 2 s it adds a permit per worker; above 2 s it halves the cap.
# These settings are close to those of that gateway's first deployment:

# %%
first_deployed = Gateway(
    bands=Band(
        fairness=DeficitRoundRobin(semantics="verbatim"),
        queue=Queue(max_requests=16, timeout_s=30),
    ),
    limit=WorkerBudget(cap_per_worker=16, workers=WORKERS),
    controller=Aimd(target_s=2, band=0, decrease="factor", decrease_factor=0.5),
    guard=Guard(floor=1, ceiling=64, cooldown_ticks=0),
    sensor=Sensor(source="ttft", quantile=0.99, window_s=30, tick_s=5),
)
spiral = before(first_deployed)
calmer = {
    "gateway.controller.band": 0.2,
    "gateway.guard.cooldown_ticks": 3,
    "gateway.guard.floor": 16,
}
spirals = {
    name: spillway.simulate(spiral.with_(changes), seeds=SEEDS)
    for name, changes in {
        "as first deployed": {},
        "band 0.2, cooldown 3, floor 16": calmer,
        "timeout 1 s instead": {TIMEOUT: 1},
    }.items()
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
plots.over_time(spirals, "permits", ax=left)
plots.over_time(spirals, "sensor", ax=right)
right.legend_.remove()
for name, results in spirals.items():
    figures = results.summary()
    print(
        f"{name:31} p99 of TTFT {figures['p99_ttft_ms'].mean / 1000:4.1f} s, "
        f"goodput {figures['goodput'].mean:6.1%}, {figures['output_throughput'].mean:4.0f} tokens/s"
    )

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
searching = first_deployed.replace(
    bands=Band(
        fairness=DeficitRoundRobin(semantics="verbatim"),
        queue=Queue(max_requests=8, timeout_s=1),
    ),
    controller=Aimd(target_s=2, band=0.2, decrease="factor", decrease_factor=0.75),
    guard=Guard(floor=16, ceiling=128, cooldown_ticks=3),
)
TIMEOUTS_S = (0.25, 0.5, 0.75, 1, 1.5, 2, 5)
low = before(searching, A=8, B=2)


def permits_at_the_end(result):
    return float(result.timeline["permits"][300])


by_timeout = {}
for band in (0.2, 0):
    runs = spillway.run_many(
        [low.with_({TIMEOUT: one, "gateway.controller.band": band}) for one in TIMEOUTS_S],
        seeds=SEEDS,
    )
    by_timeout[f"band {band:g}"] = dict(zip(TIMEOUTS_S, runs, strict=True))
figure = plots.sweeps(
    by_timeout, [permits_at_the_end, "goodput"], setting="queue timeout (s)", log="x"
)

# %% [markdown]
# With 1.5 s or more, the limit ends near its floor: the death spiral again, only cushioned.
# With 1 s and a band, it freezes far below the optimum.
# There, nearly all served requests have waited the full second; with the engines' half second,
# the p99 lies between 1.6 and 2.4 s, the *deadband*, in which the controller holds the limit.
# The controller sees no need to act, while most requests are rejected.
# Without the band, the limit climbs further with the same timeout.
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
nervous = before(
    searching.replace(
        limit=WorkerBudget(cap_per_worker=64, workers=WORKERS),
        guard=Guard(floor=8, ceiling=256, cooldown_ticks=3),
    ),
    **QUEUES,
)


def moves(result):
    """The number of ticks at which the controller asks for a move of the limit."""
    return float(result.control.count("increase") + result.control.count("decrease"))


def early_cuts(result):
    cut = result.control.actions.index("decrease")
    return float(
        result.control.num_ticks(lambda rows: (rows["action"] == cut) & (rows["time_s"] < 120))
    )


figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
print("band  cooldown  cuts by t = 120 s  moves       output tokens/s  goodput")
for ax, band in zip(axes, (0, 0.2), strict=True):
    cooled = {
        ticks: spillway.simulate(
            nervous.with_({"gateway.controller.band": band, "gateway.guard.cooldown_ticks": ticks}),
            seeds=SEEDS,
        )
        for ticks in (0, 3, 6)
    }
    plots.over_time({f"cooldown {ticks} ticks": runs for ticks, runs in cooled.items()},
                    "permits", ax=ax)  # fmt: skip
    ax.set(title=f"band {band:g}", xlim=(0, 300))
    for ticks, results in cooled.items():
        figures = results.summary()
        print(
            f"{band:4g}  {ticks:8}  {results.interval(early_cuts)!s:>17}  "
            f"{results.interval(moves)!s:>9}  {figures['output_throughput']!s:>16}  "
            f"{figures['goodput'].mean:7.1%}"
        )

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
gated = before(
    searching.replace(
        limit=WorkerBudget(cap_per_worker=32, workers=WORKERS),
        guard=Guard(floor=16, ceiling=256, cooldown_ticks=3, demand="in_flight_or_queued"),
    ),
    **QUEUES,
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
    "no gate": {"gateway.guard.demand_gate": False},
    "in flight or queued": {"gateway.guard.demand": "in_flight_or_queued"},
    "queued only": {"gateway.guard.demand": "queued_only"},
    "ceiling 64 per worker": {"gateway.guard.ceiling": 64},
}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
demanded = {}
for ax, (load, clients) in zip(axes, LOADS.items(), strict=True):
    base = gated.replace(workload=workload.Synthetic(clients=clients))
    demanded[load] = {
        gate: spillway.simulate(base.with_(changes), seeds=SEEDS) for gate, changes in GATES.items()
    }
    plots.over_time(demanded[load], "permits", ax=ax)
    ax.set(title=load)
    for gate, results in demanded[load].items():
        figures = results.summary()
        print(
            f"{load:20} {gate:21} p99 of TTFT {figures['p99_ttft_ms'].mean / 1000:4.1f} s, "
            f"goodput {figures['goodput'].mean:.1%}"
        )

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
# The duration of a step is fitted to published throughputs, the memory to published latencies;
# queues, waits and the controller's moves follow.
# ([`tools/fit_l4.py`](../tools/fit_l4.py) compares them with the published figures.)

# %%
CAPS = (4, 8, 16, 32, 64, 128, 256)
on_engines = vllm_on_eks.post4().apply(
    presets.get("work-conservation-priority").apply(
        spillway.Simulation(instances=vllm_on_eks.l4().instances)
    )
)
WAYS = {"fixed": {"gateway.controller": "static"}, "start of the controller": {}}
on_steps = {}
for way, changes in WAYS.items():
    # Starts below the floor of 16 had a lower floor.
    runs = spillway.run_many(
        [
            on_engines.with_({CAP: cap, "gateway.guard.floor": min(cap, 16), **changes})
            for cap in CAPS
        ],
        seeds=SEEDS,
    )
    on_steps[way] = dict(zip(CAPS, runs, strict=True))
figure = plots.sweeps(
    on_steps,
    ["p99_ttft_ms", "mean_queue_ms", "p95_scheduling_delay_ms"],
    setting="cap per worker",
    log="xy",
)

# %% [markdown]
# The engines reproduce the U: with too few permits, requests wait in the gateway's queue; with too
# many, they wait in the engines for KV memory, which about 64 requests fill.
# (The time from arrival to the first step, on the right, holds both waits.)
# The controller shortens the wait from starts that are far too large.
# From a cap that is far too low, it does not find the minimum.
#
# ## All together
#
# The blog's final settings are short queues, a timeout of 1 s, a window of 10 s, and cuts by a
# quarter.
# An overview of the whole gateway:

# %%
final = searching.replace(
    bands=Band(
        fairness=DeficitRoundRobin(semantics="verbatim"),
        queue=Queue(max_requests=1, timeout_s=1),  # A has 2
    ),
    limit=WorkerBudget(cap_per_worker=64, workers=WORKERS),
    guard=Guard(floor=32, ceiling=256, cooldown_ticks=3),
    sensor=Sensor(source="ttft", quantile=0.99, window_s=10, tick_s=5),
)
adaptive = before(final, **QUEUES)
figure = spillway.simulate(adaptive).plot.gateway()

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
by_start = {
    "fixed": over_budgets(adaptive.with_({"gateway.controller": "static"})),
    "start of the controller": over_budgets(adaptive),
}
figure = plots.sweeps(by_start, ["goodput"], setting="budget (permits)", log="x")

# %%
fixed, started = ([goodput(runs) for runs in by_start[way].values()] for way in by_start)
frozen = by_timeout["band 0.2"][1].interval(permits_at_the_end).mean
quiet = {
    gate: runs.summary()["p99_ttft_ms"].mean / 1000
    for gate, runs in demanded["quiet, then a burst"].items()
}
Markdown(
    f"Fair queues divide contended capacity by weight ({shares['deficit round robin']:.1f} : 1) "
    f"and reserve none. A controller that reads the time to first token includes the wait in the "
    f"gateway's own queue, and so starves the fleet if that wait may exceed its target. "
    f"The controller does not beat the best fixed budget ({max(started):.0%} against "
    f"{max(fixed):.0%}), but it does not need to know it: goodput is between {min(started):.0%} "
    f"and {max(started):.0%} from any start in the figure, while the same budgets fixed give "
    f"{min(fixed):.0%} to {max(fixed):.0%}.\n\n"
    f"**So set** first `queue.timeout_s`, to less than `target_s * (1 - band)` less the engines' "
    f"own time to first token: with 30 s goodput is {goodput(spirals['as first deployed']):.0%}, "
    f"with 1 s {goodput(spirals['timeout 1 s instead']):.0%}, but there a band of 0.2 freezes the "
    f"limit at {frozen:.0f} permits instead of the best {best_static}. Set `cooldown_ticks` to "
    f"cover `window_s`, and `ceiling` near the best budget that you know: a demand gate that "
    f"counts requests in flight does nothing (after ten quiet minutes, a burst sees a p99 of "
    f"{quiet['in flight or queued']:.0f} s instead of {quiet['ceiling 64 per worker']:.1f} s)."
)
