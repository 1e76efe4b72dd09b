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
# # When should busy workers reject requests?
#
# [NVIDIA Dynamo](https://github.com/ai-dynamo/dynamo) has two lines of defense.
# Its frontend rejects requests while all workers are *busy*, and each worker limits the number of
# requests that it accepts.
#
# - When does the frontend oscillate between admitting all requests and none?
# - What does the state of a worker hide?
# - How long should the queue in front of an engine be?
# - What does a threshold do that is set in the middle of an overload?
# - What is the effect of agents that fill the cache?
#
# It takes about 10 s of processor time.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown

import spillway
from spillway import gateway, metrics, profiles, signals, workload
from spillway.report import plots
from spillway.systems.dynamo import presets as dynamo

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
SEEDS = range(2) if FAST else range(5)
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


def share_rejected(result):
    """At the gateway or by a worker."""
    summary = result.summary()
    return summary["rejected"] / summary["offered"]


def run_all(simulations):
    return dict(
        zip(simulations, spillway.run_many(list(simulations.values()), seeds=SEEDS), strict=True)
    )


def tabulate(rows, label):
    """Prints the figures of named results."""
    width = max(len(label), *map(len, rows))
    print(f"{label:{width}}  rejected  p50 of TTFT (ms)  p99 of TTFT (ms)  goodput")
    for name, results in rows.items():
        figures = results.summary()
        p50, p99 = (figures[one].mean for one in ("p50_ttft_ms", "p99_ttft_ms"))
        print(
            f"{name:{width}}  {results.interval(share_rejected).mean:8.1%}  {p50:16,.0f}  "
            f"{p99:16,.0f}  {figures['goodput'].mean:7.1%}"
        )


# %% [markdown]
# ## Rejecting while all workers are busy
#
# A worker is busy if the prompts without a first token exceed a threshold of tokens.
# The router skips busy workers; while all are busy, requests are rejected (status 529).
# `dynamo.v1_6` has these rules and Dynamo's router, which queues requests only if a
# threshold is set (in 1.2 and 1.3 by default).
# The fleet can serve about 180 requests/s; 240 arrive.

# %%
RATE_PER_S = 240
loaded = fleet(RATE_PER_S)
THRESHOLDS = (None, 2_000, 8_000, 32_000, 128_000)


def named(threshold):
    return "none" if threshold is None else f"{threshold:,} tokens"


protected = {
    one: dynamo.v1_6(active_prefill_tokens_threshold=one).apply(loaded) for one in THRESHOLDS
}
by_threshold = run_all({named(one): simulation for one, simulation in protected.items()})
tabulate(by_threshold, "threshold")

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
fresh = protected[THRESHOLD]
stale = fresh.replace(signals=signals.Scraped(period_s=PERIOD_S))
runs = {
    "immediate events": spillway.simulate(fresh),
    f"events every {PERIOD_S:g} s": spillway.simulate(stale),
}
ax = plots.over_time(runs, "admitted", bins=np.arange(4, 16.1, 0.25))
ax.axhline(RATE_PER_S, color="gray", linewidth=1, label="offered")
legend = ax.legend(fontsize="small", loc="lower right")

# %% [markdown]
# With stale load reports, all requests are admitted for two seconds, and then none.
# After two seconds of full load all workers are busy; after two seconds without load none is.
# Does another threshold help?

# %%
tabulate(
    run_all(
        {
            named(one): protected[one].replace(signals=stale.signals)
            for one in THRESHOLDS
            if one is not None
        }
    ),
    "threshold, stale",
)

# %% [markdown]
# No: goodput stays far below that with immediate events.
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
every = iter(
    spillway.run_many(
        [
            fresh.with_(changes).replace(signals=signals.Scraped(period_s=period, jitter=jitter))
            for jitter, changes in RULES.values()
            for period in PERIODS_S
        ],
        seeds=SEEDS,
    )
)
swept = {rule: {period: next(every) for period in PERIODS_S} for rule in RULES}
figure = plots.sweeps(
    swept,
    ["goodput", "p99_ttft_ms"],
    setting="time between two load events of a worker (s)",
    log="xy",
)
figure.set_size_inches(10, 3.9)

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
# Here one long prompt fills the memory of one of four ranks, and 100 short requests follow.
# Either the router chooses the worker, which then distributes the requests over its ranks by their
# number; or Dynamo's KV router also chooses the rank, by its blocks.

# %%
SHORT = 100
trace = spillway.trace(
    arrival_s=np.concatenate([[0.0], 0.5 + 0.05 * np.arange(SHORT)]),
    input_tokens=np.concatenate([[1300], np.full(SHORT, 64)]),
    output_tokens=np.concatenate([[290], np.full(SHORT, 40)]),
)
ranked = dynamo.v1_6(active_decode_blocks_threshold=0.8).apply(
    spillway.Simulation(
        workload=trace,
        instances=profiles.BLIS_SERVER.replace(data_parallel_size=4, num_kv_blocks=100),
    )
)
RANKS = {
    "all ranks busy; the worker chooses": ("round_robin", 1),
    "any rank busy; the worker chooses": ("round_robin", 0),
    "all ranks busy; the KV router chooses": ("kv_cost", 1),
}
print(f"{'':38} rejected  on the hot rank  their slowest E2E  others' slowest E2E")
for name, (policy, share) in RANKS.items():
    result = spillway.simulate(
        ranked.with_({"router": policy, "busy_monitor.busy_rank_share": share})
    )
    requests = {key: result.requests[key][1:] for key in ("e2e_s", "rank", "outcome")}
    rejected = requests["outcome"] == "rejected"
    hot = ~rejected & (requests["rank"] == result.requests["rank"][0])
    slowest = [
        f"{np.nanmax(requests['e2e_s'][which]):.2f} s" if which.any() else "-"
        for which in (hot, ~rejected & ~hot)
    ]
    print(f"{name:38} {rejected.sum():8}  {hot.sum():15}  {slowest[0]:>17}  {slowest[1]:>19}")

# %% [markdown]
# If all ranks must be busy, no request is rejected, and some of those on the full rank wait.
# If one busy rank suffices, requests are rejected although three ranks are idle.
# No rule with one state per worker is right; the router that chooses the rank needs no rule: it
# avoids the full rank until the long request has ended.
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
print(f"{'version':20}  rejected  preemptions  mean end-to-end latency (ms)")
preemptions = {}
for name, preset in COUNTS.items():
    figures = spillway.simulate(preset.apply(long_answers)).summary()
    preemptions[name] = figures["preemptions"]
    print(
        f"{name:20}  {figures['rejected']:8}  {figures['preemptions']:11}  "
        f"{figures['mean_e2el_ms']:28,.0f}"
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
every = iter(
    spillway.run_many(
        [
            dynamo.v1_6(engine_request_limit=limit, queue_size=size).apply(loaded)
            for limit in LIMITS
            for size in SIZES
        ],
        seeds=SEEDS,
    )
)
queues = {f"N = {limit}": {size: next(every) for size in SIZES} for limit in LIMITS}
figure = plots.sweeps(
    queues, [share_rejected, "p99_ttft_ms", "goodput"], setting="Q (requests)", log="xy"
)

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
        f"{limit}: {rate_per_s:.0f} requests/s and {1000 * in_engine_s:3.0f} ms in the engine, "
        f"so Q < {rate_per_s * (TARGET_S - in_engine_s):.0f}"
    )

# %% [markdown]
# Two later snapshots limit the relevant quantity more directly: the time in the queue
# (`dynamo.dev_b`), or the number of requests without a first token (`dynamo.dev_c`).
# Their default limits do not bind under this load.

# %%
GATES = {
    "1.6, N = 64, Q = 16": dynamo.v1_6(engine_request_limit=64, queue_size=16),
    "1.6, N = 64, Q = 512": dynamo.v1_6(engine_request_limit=64, queue_size=512),
    "dev b, defaults": dynamo.dev_b(),
    "dev b, N = 64": dynamo.dev_b(engine_request_limit=64),
    "dev b, N = 64, 0.5 s": dynamo.dev_b(engine_request_limit=64, request_queue_timeout_s=0.5),
    "dev c, defaults": dynamo.dev_c(),
    "dev c, 4 before first token, Q = 16": dynamo.dev_c(wait_limit=4, queue_size=16),
}
gates = run_all({name: preset.apply(loaded) for name, preset in GATES.items()})
tabulate(gates, "gate")

# %% [markdown]
# A worker that rejects a request counts as busy until its next load event.
# So with infrequent events, a single rejection excludes it for that whole period:

# %%
capped = dynamo.v1_6(engine_request_limit=64, queue_size=16).apply(loaded)
seldom = capped.replace(signals=signals.Scraped(period_s=5, jitter=1))
TRANSPORTS = {
    "immediate": capped,
    "every 5 s": seldom,
    "every 5 s, any worker": seldom.with_(ALL_WORKERS),
}
tabulate(run_all(TRANSPORTS), "load events")

# %% [markdown]
# ## Thresholds that are set while the fleet is overloaded
#
# The first fleet again, without thresholds; its clients time out after ten seconds, and back off
# exponentially when they are rejected.
# (What retries do to a fleet without such a limit is a part of
# [the failure tour](09_failure_tour.ipynb).)
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
unguarded = dynamo.v1_6().apply(fleet(RATE_PER_S, duration_s=END_S)).replace(reaction=patient)
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
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
plots.over_time(futures, "goodput", bins=24, ax=left)
plots.over_time(futures, "shed", bins=24, ax=right)
right.legend_.remove()
for name, result in futures.items():
    attempts = result.ledger["attempts"] / result.ledger["logical_requests"]
    last = result.requests["arrival_s"] > RELAXED_S
    in_time = (result.requests["ttft_s"][last] <= TARGET_S).mean()
    print(f"{name:25} {attempts:.1f} attempts per request; {in_time:4.0%} in time after 40 s")

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


def memory_of_running_requests(result):
    """The share of the KV memory that running requests hold, mean over time."""
    used = result.timeline["kv_utilization"][result.timeline["time_s"] > 50]
    return float(used.mean())


POLICIES = {
    "no limit": {},
    "limit, oldest first": {"gateway": concur("fcfs")},
    "limit, newest first": {"gateway": concur("lifo")},
}
every = iter(
    spillway.run_many(
        [agents(users, **settings) for settings in POLICIES.values() for users in AGENTS],
        seeds=SEEDS[:3],
    )
)
thrash = {name: {users: next(every) for users in AGENTS} for name in POLICIES}
figure = plots.sweeps(
    thrash, ["output_throughput", "cache_hit_rate", memory_of_running_requests], setting="agents"
)

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
    f"Rejecting while all workers are busy is only as good as its data is fresh: goodput is "
    f"{percent(by_threshold[named(THRESHOLD)])} if the load is known immediately, and "
    f"{percent(swept['simultaneous'][longest])} or {percent(swept['random instants'][longest])} "
    f"with events every {longest:g} s, simultaneous or at random instants. "
    f"A count of prompt blocks misses long outputs ({preemptions['1.2']} preemptions with 1.2 "
    f"against {preemptions['1.3']} with 1.3).\n\n"
    f"**So set** a limit in the worker, which needs no load reports, and its queue to less than "
    f"the worker's rate times the target: with N = 64 and Q = 16, goodput is "
    f"{percent(gates['1.6, N = 64, Q = 16'])}, with Q = 512 "
    f"{percent(gates['1.6, N = 64, Q = 512'])}. Where load events are seldom, set "
    f"`busy_monitor.router_skips_busy` to false (goodput is "
    f"{percent(swept['random, any worker'][longest])} instead of "
    f"{percent(swept['random instants'][longest])} at {longest:g} s). For agents, set the "
    f"`ordering` of the queue to `lifo` with a limit on requests in flight: {AGENTS[-1]} agents "
    f"get {newest:.0f} tokens/s instead of {unlimited[-1]:.0f} without a limit, of at most "
    f"{max(unlimited):.0f}."
)
