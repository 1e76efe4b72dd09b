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
# # Worker protection, and the effect of stale load reports
#
# [NVIDIA Dynamo](https://github.com/ai-dynamo/dynamo) has two lines of defense.
# Its frontend rejects requests while all workers are *busy*, and each worker limits the number of
# requests that it accepts.
#
# - When does the frontend oscillate between admitting all requests and none?
# - What does the state of a worker hide?
# - How long should the queue in front of an engine be?
# - What is the effect of clients that retry, and of agents that fill the cache?
# - What does a threshold do that is set in the middle of an overload?

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.ticker import FuncFormatter, NullLocator

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
SEEDS = range(2) if FAST else range(5)

# %%
import spillway
from spillway import gateway, metrics, profiles, signals, workload
from spillway.report import plots
from spillway.systems.dynamo import presets as dynamo
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

TARGET_S = 1.0


def fleet(requests_per_s, duration_s=30):
    """Four workers; the target is a first token within a second."""
    return spillway.Simulation(
        workload=workload.Synthetic(
            requests_per_s=requests_per_s,
            duration_s=duration_s,
            clients=workload.Client(
                input_tokens=workload.Gaussian(
                    mean_tokens=1000, std_dev_tokens=400, min_tokens=16, max_tokens=4000
                ),
                output_tokens=workload.Fixed(tokens=32),
            ),
        ),
        slo_classes=workload.SloClass(target_ttft_s=TARGET_S),
        instances=profiles.BLIS_SERVER.replace(count=4),
    )


def shed(result):
    """The share of the requests rejected, at the gateway or by a worker."""
    return float((result.requests["outcome"] == "rejected").mean())


def tabulate(rows, label):
    """Prints the figures of named results."""
    width = max(len(name) for name in rows)
    print(f"{label:{width}}  rejected  p50 of TTFT (ms)  p99 of TTFT (ms)  goodput")
    for name, results in rows.items():
        figures = results.summary()
        p50, p99 = (figures[one].mean for one in ("p50_ttft_ms", "p99_ttft_ms"))
        print(
            f"{name:{width}}  {results.interval(shed).mean:8.1%}  {p50:16,.0f}  {p99:16,.0f}  "
            f"{figures['goodput'].mean:7.1%}"
        )


# %% [markdown]
# ## Rejecting while all workers are busy
#
# A worker is busy if the prompts without a first token exceed a threshold of tokens.
# The router skips busy workers; while all are busy, requests are rejected (status 529).
# `dynamo.v1_3` has these rules and Dynamo's router.
# The fleet can serve about 180 requests/s; 240 arrive.

# %%
RATE_PER_S = 240
loaded = fleet(RATE_PER_S)
THRESHOLDS = (None, 2_000, 8_000, 32_000, 128_000)
protected = {
    threshold: dynamo.v1_3(active_prefill_tokens_threshold=threshold).apply(loaded)
    for threshold in THRESHOLDS
}
every = spillway.run_many(list(protected.values()), seeds=SEEDS, keep_requests=True)
by_threshold = dict(zip(THRESHOLDS, every, strict=True))
names = ["none" if one is None else f"{one:,} tokens" for one in THRESHOLDS]
tabulate(dict(zip(names, every, strict=True)), "threshold")

# %% [markdown]
# If the frontend always knows the current load of its workers, this rule suffices.
# With too low a threshold, workers are idle now and then, and a threshold beyond what they compute
# within the target has no effect; in between, it matters little.
#
# ## Stale load reports
#
# In practice, the frontend learns the load from load events.
# Here, all workers report their load every two seconds, at the same instant.

# %%
THRESHOLD = 8_000
PERIOD_S = 2.0
BIN_S = 0.25
SHOWN_S = (4, 16)
fresh = protected[THRESHOLD]
stale = fresh.replace(signals=signals.Scraped(period_s=PERIOD_S))

fig, ax = plt.subplots(figsize=(8.5, 3), layout="constrained")
edges = np.arange(SHOWN_S[0], SHOWN_S[1] + BIN_S / 2, BIN_S)
for number, (name, simulation) in enumerate(
    {"immediate events": fresh, f"events every {PERIOD_S:g} s": stale}.items()
):
    requests = spillway.simulate(simulation, seed=0).requests
    counts, _ = np.histogram(requests["arrival_s"][requests["admitted"]], edges)
    ax.stairs(
        counts / BIN_S,
        edges,
        label=name,
        color=plots.STYLES[number]["color"],
        linestyle=plots.STYLES[number]["linestyle"],
        linewidth=1.8,
    )
ax.axhline(RATE_PER_S, color="gray", linewidth=1, label="offered")
ax.set(xlabel="arrival (s)", ylabel="admitted (requests/s)", xlim=SHOWN_S, ylim=(0, 370))
ax.grid(alpha=0.3)
legend = ax.legend(ncols=3, loc="upper center", fontsize="small")

# %% [markdown]
# With stale load reports, all requests are admitted for two seconds, and then none.
# After two seconds of full load all workers are busy; after two seconds without load none is.
# Does another threshold help?

# %%
every = spillway.run_many(
    [protected[one].replace(signals=stale.signals) for one in THRESHOLDS[1:]],
    seeds=SEEDS,
    keep_requests=True,
)
tabulate(dict(zip(names[1:], every, strict=True)), "threshold, stale")

# %% [markdown]
# No: it only changes the timing of the oscillation.
#
# Real workers do not report at the same instant.
# Does that smooth the oscillation?
# Below, each event is delayed by a random part of the period.
# There are four rules: Dynamo's with simultaneous events; Dynamo's with events at random instants;
# the same, but the router chooses among all workers, busy or not; and a rule that Dynamo does not
# have, which rejects with a probability equal to the share of busy workers.

# %%
PERIODS_S = (0.02, 0.2, 2) if FAST else (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
ALL_WORKERS = {"busy_monitor.router_skips_busy": False}
IN_PROPORTION = {"gateway.admission[0].proportional": True}
RULES = {
    "simultaneous": (0, {}),
    "random instants": (1, {}),
    "random, any worker": (1, ALL_WORKERS),
    "random, any, proportional": (1, ALL_WORKERS | IN_PROPORTION),
}
every = spillway.run_many(
    [
        fresh.with_(changes).replace(signals=signals.Scraped(period_s=period, jitter=jitter))
        for jitter, changes in RULES.values()
        for period in PERIODS_S
    ],
    seeds=SEEDS,
)
swept = {
    rule: dict(zip(PERIODS_S, every[i * len(PERIODS_S) :], strict=False))
    for i, rule in enumerate(RULES)
}


def seconds(value, _=None):
    """A time as a label."""
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"


fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
for number, (rule, by_period) in enumerate(swept.items()):
    figures = [one.summary() for one in by_period.values()]
    style = plots.STYLES[number] | {"marker": "os^D"[number], "markersize": 5}
    left.plot(PERIODS_S, [one["goodput"].mean for one in figures], label=rule, **style)
    right.plot(PERIODS_S, [one["p99_ttft_ms"].mean / 1000 for one in figures], **style)
at_best = by_threshold[THRESHOLD].summary()
left.axhline(at_best["goodput"].mean, color="gray", linewidth=1, label="immediate")
right.axhline(at_best["p99_ttft_ms"].mean / 1000, color="gray", linewidth=1)
left.set(ylabel="goodput", ylim=(0, 0.9))
left.yaxis.set_major_formatter("{x:.0%}")
right.set(ylabel="p99 of TTFT", yscale="log")
right.yaxis.set_major_formatter(FuncFormatter(seconds))
for ax in (left, right):
    ax.set(xlabel="time between two load events of a worker", xscale="log")
    ax.xaxis.set_major_formatter(FuncFormatter(seconds))
    ax.set_xticks([0.02, 0.1, 0.5, 2])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.3)
legend = fig.legend(loc="outside upper center", ncols=5, fontsize="small")

# %% [markdown]
# Random instants make it worse.
# As the workers become busy one by one, the router skips them, and the last one not known to be
# busy gets *all* requests until its next event.
# A router that uses all workers spreads the admitted requests, and a gate that closes gradually
# admits fewer of them.
# Still, current data helps most: with a period of up to 100 ms, the rule hardly matters.
#
# ## What the state of a worker hides
#
# A worker may have several ranks, each with its own KV memory.
# Dynamo treats it as busy only if **all** of them are.
# Here one long prompt fills the memory of one of four ranks, and short requests follow.
# Either the router chooses the worker, which then distributes the requests over its ranks by their
# number; or Dynamo's KV router also chooses the rank, by its blocks.

# %%
SHORT = 100
trace = spillway.trace(
    arrival_s=np.concatenate([[0.0], 0.5 + 0.05 * np.arange(SHORT)]),
    input_tokens=np.concatenate([[1300], np.full(SHORT, 64)]),
    output_tokens=np.concatenate([[290], np.full(SHORT, 40)]),
)
ranked = dynamo.v1_3(active_decode_blocks_threshold=0.8).apply(
    spillway.Simulation(
        workload=trace,
        instances=profiles.BLIS_SERVER.replace(data_parallel_size=4, num_kv_blocks=100),
    )
)

fig, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained", sharey=True)
RANKS = {
    "busy: all ranks; rank: the worker's": ("round_robin", 1),
    "busy: any rank; rank: the worker's": ("round_robin", 0),
    "busy: all ranks; rank: the KV router's": ("kv_cost", 1),
}
for ax, (name, (policy, share)) in zip(axes, RANKS.items(), strict=True):
    result = spillway.simulate(
        ranked.with_({"router": policy, "busy_monitor.busy_rank_share": share})
    )
    requests = {key: result.requests[key][1:] for key in ("arrival_s", "e2e_s", "rank", "outcome")}
    first = result.requests["rank"][0]
    rejected = requests["outcome"] == "rejected"
    on_hot = ~rejected & (requests["rank"] == first)
    rest = ~rejected & ~on_hot
    for number, (label, mine) in enumerate({"other ranks": rest, "hot rank": on_hot}.items()):
        style = {"color": plots.STYLES[number]["color"], "linestyle": "", "markersize": 4}
        ax.plot(
            requests["arrival_s"][mine], requests["e2e_s"][mine], "os"[number], label=label, **style
        )
    ax.plot(
        requests["arrival_s"][rejected],
        np.zeros(rejected.sum()),
        "x",
        color="black",
        markersize=4,
        label="rejected",
    )
    ax.set(title=name, xlabel="arrival (s)")
    ax.title.set_fontsize("medium")
    ax.grid(alpha=0.3)
axes[0].set_ylabel("end-to-end latency (s)")
legend = axes[0].legend(fontsize="small")

# %% [markdown]
# If all ranks must be busy, no request is rejected, and some of the requests on the full rank
# wait several times as long or are preempted.
# If one busy rank suffices, the worker gets no requests until that rank has room again, and three
# ranks are idle.
# No rule with one state per worker is right; the router that chooses the rank needs no rule: it
# avoids the full rank until the long request has ended and serves all others immediately.
#
# The state of a worker also hides the length of its outputs.
# Here, prompts of one KV block get outputs of 25 blocks.
# Version 1.2 counts the blocks of prompts, unless it is configured to track outputs; 1.3 also uses
# the blocks that the engine reports.

# %%
long_answers = spillway.Simulation(
    workload=spillway.trace(
        arrival_s=0.15 * np.arange(120),
        input_tokens=np.full(120, 16),
        output_tokens=np.full(120, 400),
    ),
    instances=profiles.BLIS_SERVER.replace(num_kv_blocks=200),
)
COUNTS = {
    "1.2": dynamo.v1_2(active_decode_blocks_threshold=0.6),
    "1.2, tracks outputs": dynamo.v1_2(
        active_decode_blocks_threshold=0.6, track_output_blocks=True
    ),
    "1.3": dynamo.v1_3(active_decode_blocks_threshold=0.6),
}
print(f"{'version':20}  rejected  preemptions  mean end-to-end latency (s)")
preemptions = {}
for name, preset in COUNTS.items():
    result = spillway.simulate(preset.apply(long_answers))
    requests = result.requests
    preemptions[name] = int(requests["preemptions"].sum())
    print(
        f"{name:20}  {(requests['outcome'] == 'rejected').sum():8}  {preemptions[name]:11}  "
        f"{np.nanmean(requests['e2e_s']):27.1f}"
    )

# %% [markdown]
# ## N + Q: the limit of a worker
#
# The second line of defense needs no load reports.
# A worker admits N requests to its engine and Q more to a queue in front of it, and rejects the
# rest.
# N keeps the engine busy.
# What is Q good for?
# The same 240 requests/s, without thresholds:

# %%
SIZES = (2, 32, 512) if FAST else (2, 4, 8, 16, 32, 64, 128, 256, 512)
LIMITS = (16, 32, 64)
every = spillway.run_many(
    [
        dynamo.v1_3(engine_request_limit=limit, queue_size=size).apply(loaded)
        for limit in LIMITS
        for size in SIZES
    ],
    seeds=SEEDS,
    keep_requests=True,
)
queues = {
    limit: dict(zip(SIZES, every[i * len(SIZES) :], strict=False)) for i, limit in enumerate(LIMITS)
}
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
PANELS = {
    "rejected": lambda results: results.interval(shed).mean,
    "p99 of TTFT": lambda results: results.summary()["p99_ttft_ms"].mean / 1000,
    "goodput": lambda results: results.summary()["goodput"].mean,
}
for ax, (name, figure) in zip(axes, PANELS.items(), strict=True):
    for number, (limit, by_size) in enumerate(queues.items()):
        ax.plot(
            SIZES,
            [figure(one) for one in by_size.values()],
            marker="os^"[number],
            markersize=5,
            label=f"N = {limit}",
            **plots.STYLES[number],
        )
    ax.set(title=name, xlabel="Q (requests)", xscale="log")
    ax.title.set_fontsize("medium")
    ax.set_xticks([2, 8, 32, 128, 512], ["2", "8", "32", "128", "512"])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(alpha=0.3)
    if name == "p99 of TTFT":
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(seconds))
        ax.axhline(TARGET_S, color="black", linestyle=":", linewidth=1)
    else:
        ax.set_ylim(0, 0.9)
legend = axes[0].legend(fontsize="small")

# %% [markdown]
# A longer queue rejects fewer requests only until it fills up for the first time.
# From then on, every request waits as long as the queue takes to drain, and once that exceeds the
# target, all work is wasted.
# So Q must stay below the rate of a worker times the target less the engine's own time to first
# token:

# %%
for limit, by_size in queues.items():
    figures = by_size[SIZES[0]].summary()
    rate_per_s = figures["request_throughput"].mean / 4
    in_engine_s = figures["mean_ttft_ms"].mean / 1000
    print(
        f"N = {limit}: {rate_per_s:.0f} requests/s and {1000 * in_engine_s:3.0f} ms in the engine, "
        f"so Q < {rate_per_s * (TARGET_S - in_engine_s):.0f}"
    )

# %% [markdown]
# Two later snapshots limit the relevant quantity more directly: the time in the queue
# (`dynamo.dev_b`), or the number of requests without a first token (`dynamo.dev_c`).
# Their default limits do not bind under this load.

# %%
GATES = {
    "1.3, N = 64, Q = 16": dynamo.v1_3(engine_request_limit=64, queue_size=16),
    "1.3, N = 64, Q = 512": dynamo.v1_3(engine_request_limit=64, queue_size=512),
    "dev b, defaults": dynamo.dev_b(),
    "dev b, N = 64": dynamo.dev_b(engine_request_limit=64),
    "dev b, N = 64, 0.5 s": dynamo.dev_b(engine_request_limit=64, request_queue_timeout_s=0.5),
    "dev c, defaults": dynamo.dev_c(),
    "dev c, 4 before first token, Q = 16": dynamo.dev_c(wait_limit=4, queue_size=16),
}
every = spillway.run_many(
    [preset.apply(loaded) for preset in GATES.values()], seeds=SEEDS, keep_requests=True
)
gates = dict(zip(GATES, every, strict=True))
tabulate(gates, "gate")

# %% [markdown]
# A worker that rejects a request counts as busy until its next load event.
# So with infrequent events, a single rejection excludes it for that whole period:

# %%
capped = dynamo.v1_3(engine_request_limit=64, queue_size=16).apply(loaded)
TRANSPORTS = {
    "immediate": capped,
    "every 5 s": capped.replace(signals=signals.Scraped(period_s=5, jitter=1)),
    "every 5 s, any worker": capped.replace(signals=signals.Scraped(period_s=5, jitter=1)).with_(
        ALL_WORKERS
    ),
}
every = spillway.run_many(list(TRANSPORTS.values()), seeds=SEEDS, keep_requests=True)
marked = dict(zip(TRANSPORTS, every, strict=True))
tabulate(marked, "load events")

# %% [markdown]
# ## Clients that retry
#
# Two small GPUs work at three quarters of their capacity.
# A surge of half a minute follows.
# Clients time out after 25 s and retry if their rules allow it.
# `Result.recovery` reports whether goodput recovers.

# %%
TRIGGER_S = (120.0, 150.0)
STEP_S = 10


def surged(retries, surge_per_s=12):
    """The surge, with clients that retry by these rules."""
    usual = workload.Client(name="usual", requests_per_s=4.4)
    surge = workload.Client(
        name="surge",
        requests_per_s=surge_per_s,
        start_s=TRIGGER_S[0],
        duration_s=TRIGGER_S[1] - TRIGGER_S[0],
    )
    return spillway.Simulation(
        workload=workload.Synthetic(clients=[usual, surge], duration_s=600),
        slo_classes=workload.SloClass(target_e2e_s=25),
        reaction=workload.Reaction(timeout_s=25, retries=retries),
        instances=vllm_on_eks.toy_plant().instances,
        router="least_loaded",
        horizon_s=640,
        warm_up_s=30,
    )


RETRIES = {
    "no retries": [],
    "every 0.5 s": [workload.Retry(max_attempts=6, backoff_s=0.5, multiplier=1, jitter="none")],
    "growing, random backoff": [workload.Retry(max_attempts=6, backoff_s=5, jitter="full")],
    "a budget of 10 %": [
        workload.Retry(max_attempts=6, backoff_s=1, budget_ratio=0.1, jitter="full")
    ],
}
every = spillway.run_many([surged(rules) for rules in RETRIES.values()], SEEDS, keep_requests=True)
storms = dict(zip(RETRIES, every, strict=True))


def goodput_over_time(result):
    """The share of the requests of each time step that completed in time."""
    requests = result.requests
    steps = np.floor(requests["arrival_s"] / STEP_S).astype(int)
    good = requests["e2e_s"] <= 25
    return np.array([good[steps == step].mean() for step in range(int(600 / STEP_S))])


fig, ax = plt.subplots(figsize=(8.5, 3.4), layout="constrained")
ax.axvspan(*TRIGGER_S, color="gray", alpha=0.25, linewidth=0, label="surge")
time_s = STEP_S * (np.arange(600 / STEP_S) + 0.5)
print(f"{'':22}  attempts per request  goodput after  recovered after (s)")
after = {}
for number, (name, results) in enumerate(storms.items()):
    means = np.mean([goodput_over_time(result) for result in results], axis=0)
    width = 4 if number < 2 else 1.8  # visible beneath another line
    ax.plot(time_s, means, label=name, **plots.STYLES[number] | {"linewidth": width})
    found = [result.recovery(*TRIGGER_S, step_s=STEP_S) for result in results]
    after[name] = np.mean([one.after for one in found])
    attempts = np.mean([r.ledger["attempts"] / r.ledger["logical_requests"] for r in results])
    stuck = sum(one.is_metastable for one in found)
    back = [one.recovered_after_s for one in found if not one.is_metastable]
    words = f"never ({stuck} of {len(found)} seeds)" if stuck else f"at most {max(back):.0f}"
    print(f"{name:22}  {attempts:20.2f}  {after[name]:13.1%}  {words:>19}")
(calm,) = spillway.run_many([surged(RETRIES["every 0.5 s"], surge_per_s=0.001)], SEEDS)
print(f"goodput with retries every 0.5 s, but no surge: {calm.summary()['goodput'].mean:.1%}")
ax.set(xlabel="arrival (s)", ylabel="goodput", xlim=(0, 600), ylim=(-0.03, 1.05))
ax.yaxis.set_major_formatter("{x:.0%}")
ax.grid(alpha=0.3)
legend = ax.legend(fontsize="small", loc="center right")

# %% [markdown]
# With retries, the overload never ends: each request that times out has used capacity and is then
# retried, so the load stays above the capacity of the fleet.
# The same retries do no harm without the surge.
# Longer and random backoff does not help, because it only postpones the same number of attempts.
# A budget (one retry per ten requests) helps: it always bounds the load.
#
# ## Thresholds that are set while the fleet is overloaded
#
# The first fleet again, without thresholds; its clients time out after ten seconds, and back off
# exponentially when they are rejected.
# After 20 s an operator sets a threshold, which Dynamo allows at run time
# (`POST /busy_threshold`).
# A session is held at that instant, and each fork of it has a future of its own.

# %%
PREFILL = "busy_monitor.active_prefill_tokens_threshold"
HELD_S, RELAXED_S, END_S = 20, 40, 60
patient = workload.Reaction(
    timeout_s=10,
    retries=[workload.Retry(max_attempts=4, backoff_s=1, multiplier=2, jitter="full")],
)
unguarded = dynamo.v1_3().apply(fleet(RATE_PER_S, duration_s=END_S)).replace(reaction=patient)
session = spillway.start(unguarded, seed=0).advance(until_s=HELD_S)
seen = session.observe(oracle=True)
print(
    f"at {HELD_S} s: {seen['running']} requests in the batches of {seen['ready_instances']} "
    f"workers, {seen['waiting']} in their queues"
)
guarded = session.fork().set({PREFILL: THRESHOLD})
relaxed = guarded.fork().advance(until_s=RELAXED_S).set({PREFILL: 1_000 * THRESHOLD})
futures = {
    "no threshold": session.finish(),
    f"{THRESHOLD:,} tokens from {HELD_S} s": guarded.finish(),
    f"the same, lifted at {RELAXED_S} s": relaxed.finish(),
}

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharex=True)
edges = np.arange(0, END_S + 1, 2.5)
for number, (name, result) in enumerate(futures.items()):
    requests = result.requests
    sent, _ = np.histogram(requests["arrival_s"], edges)
    in_time = requests["ttft_s"] <= TARGET_S
    for ax, chosen in ((left, in_time), (right, requests["outcome"] == "rejected")):
        share = np.histogram(requests["arrival_s"][chosen], edges)[0] / sent
        ax.plot((edges[1:] + edges[:-1]) / 2, share, label=name, **plots.STYLES[number])
    attempts = result.ledger["attempts"] / result.ledger["logical_requests"]
    last = in_time[requests["arrival_s"] > RELAXED_S].mean()
    print(f"{name:25} {attempts:.1f} attempts per request; {last:4.0%} in time after {RELAXED_S} s")
left.set(ylabel="first token within a second", ylim=(0, 1))
right.set(ylabel="rejected, with all attempts", ylim=(0, 1))
for ax in (left, right):
    ax.axvline(HELD_S, color="gray", linestyle=":", linewidth=1)
    ax.axvline(RELAXED_S, color="gray", linestyle=":", linewidth=1)
    ax.set(xlabel="arrival (s)", xlim=(0, END_S))
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(alpha=0.3)
legend = fig.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)

# %% [markdown]
# Without a threshold the queues only grow, until every request waits longer than its client does.
# The threshold marks all workers as busy at once, and nearly all requests are rejected until the
# queues have drained.
# From then on almost half of the requests are served in time; the others back off, and give up.
# Once the threshold is lifted under the same load, the queues grow again.
#
# ## Agents that fill the cache
#
# An agent sends a request, thinks for half a second, and sends the next one with the whole
# conversation and 1,500 more tokens, ten times.
# Its conversation stays in the KV cache until other requests need the memory.
# The memory holds the contexts of about eight agents at their longest.

# %%
AGENTS = (4, 12, 32) if FAST else (4, 8, 12, 16, 20, 24, 32, 48)


def agents(users, **settings):
    """A number of agents on one server."""
    client = workload.Client(
        arrivals=workload.ClosedLoop(users=users, turns=10, think_time_s=0.5),
        input_tokens=workload.Fixed(tokens=1500),
        output_tokens=workload.Fixed(tokens=30),
    )
    return spillway.Simulation(
        workload=workload.Synthetic(clients=client, duration_s=200),
        instances=profiles.BLIS_SERVER.replace(num_kv_blocks=8000, max_num_seqs=64),
        metrics=metrics.Metrics(timeline_step_s=1),
        warm_up_s=50,
        horizon_s=200,
        **settings,
    )


def concur(ordering):
    """A limit controlled by the use of KV memory, with an order of the queue."""
    return gateway.Gateway(
        limit=gateway.FixedLimit(max_in_flight=16),
        bands=gateway.Band(queue=gateway.Queue(ordering=ordering)),
        controller=gateway.Concur(high_kv_utilization=0.3, decrease_factor=0.75),
        sensor=signals.Sensor(source="kv_utilization", tick_s=5),
    )


POLICIES = {
    "no limit": {},
    "limit, oldest first": {"gateway": concur("fcfs")},
    "limit, newest first": {"gateway": concur("lifo")},
}
every = spillway.run_many(
    [agents(users, **settings) for settings in POLICIES.values() for users in AGENTS],
    seeds=SEEDS[:3],
)
thrash = {
    name: dict(zip(AGENTS, every[i * len(AGENTS) :], strict=False))
    for i, name in enumerate(POLICIES)
}


def running_kv(result):
    """The share of the KV memory that running requests hold, mean over time."""
    used = result.timeline["kv_utilization"][result.timeline["time_s"] > 50]
    return float(used.mean())


fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
PANELS = {
    "output tokens/s": lambda results: results.summary()["output_throughput"].mean,
    "prompt tokens found in cache": lambda results: results.summary()["cache_hit_rate"].mean,
    "memory of running requests": lambda results: results.interval(running_kv).mean,
}
for ax, (name, figure) in zip(axes, PANELS.items(), strict=True):
    for number, (policy, by_users) in enumerate(thrash.items()):
        ax.plot(
            AGENTS,
            [figure(one) for one in by_users.values()],
            marker="os^"[number],
            markersize=5,
            label=policy,
            **plots.STYLES[number],
        )
    ax.set(title=name, xlabel="agents", ylim=(0, None if name.startswith("output") else 1))
    ax.title.set_fontsize("medium")
    if not name.startswith("output"):
        ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(alpha=0.3)
legend = axes[2].legend(fontsize="small")

# %% [markdown]
# Throughput falls by more than half long before the running requests fill the memory: the context
# that each turn could reuse has just been evicted for another agent and is computed again.
# A limit on requests in flight helps only if it keeps the *same* agents active.
# First come, first served lets all of them take turns; last come, first served keeps some of them
# active while the others wait.

# %%
unlimited = [one.summary()["output_throughput"].mean for one in thrash["no limit"].values()]
newest = thrash["limit, newest first"][AGENTS[-1]].summary()["output_throughput"].mean
longest = PERIODS_S[-1]


def percent(results):
    return f"{results.summary()['goodput'].mean:.0%}"


Markdown(
    f"**Takeaway.** "
    f"Rejecting while all workers are busy is only as good as its data is fresh: goodput is "
    f"{percent(by_threshold[THRESHOLD])} if the load is known immediately, and "
    f"{percent(swept['simultaneous'][longest])} or {percent(swept['random instants'][longest])} "
    f"with events every {longest:g} s, simultaneous or at random instants. "
    f"A router that skips busy workers floods the last one: without that rule, goodput is "
    f"{percent(swept['random, any worker'][longest])}. "
    f'The rule for "all ranks" misses a hot rank, which a router of ranks avoids, and a count of '
    f"prompt blocks misses long outputs "
    f"({preemptions['1.2']} preemptions against {preemptions['1.3']}). "
    f"A limit in the worker needs no load reports; its queue must be shorter than the target times "
    f"the worker's rate: with N = 64 and Q = 16, goodput is "
    f"{percent(gates['1.3, N = 64, Q = 16'])}, with Q = 512 "
    f"{percent(gates['1.3, N = 64, Q = 512'])}. "
    f"After a surge of half a minute, retries keep goodput at {after['every 0.5 s']:.0%} "
    f"permanently; with a retry budget it recovers ({after['a budget of 10 %']:.0%} after the "
    f"surge). "
    f"More agents than the cache can hold reduce throughput (from {max(unlimited):.0f} to "
    f"{unlimited[-1]:.0f} tokens/s); a limit that keeps the same agents active preserves most of "
    f"it ({newest:.0f})."
)
