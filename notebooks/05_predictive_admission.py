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
# # Can a gateway predict the first token?
#
# A gateway that admits a request only if its first token is predicted to arrive in time should beat
# a threshold on the length of a queue.
# That was the claim of iteration 14 of the strategy experiments of
# [BLIS](https://github.com/inference-sim/inference-sim), an LLM serving simulator.
# It was never tested: the predictor had an empty prefix index of its own, and its bypass for cold
# prompts admitted every request.
# [The complete experiment](../experiments/iteration_14/README.md), with its hypotheses and the
# controls that were missing, is elsewhere.
# This notebook runs a reduced form of it (few seeds, short runs) and then asks what a predictor
# needs in order to be useful.
#
# It takes about 10 s of processor time.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown

import spillway
from spillway import gateway, profiles, router, signals, workload
from spillway.report import plots
from spillway.systems.blis import presets as blis

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
SEEDS = range(2) if FAST else range(5)
SUSTAINED = 1_500 if FAST else 5_000  # requests

TARGETS_S = {"critical": 0.2, "standard": 0.5, "sheddable": 0.3}
PRIORITIES = {"critical": 4, "standard": 3, "sheddable": -2}


def orthogonal(requests_per_s, num_requests):
    """Three classes of equal shape: shared prefix of 512 tokens, 256 unique, 128 output."""
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=num_requests,
        clients=[
            workload.Client(
                name=name,
                slo_class=name,
                rate_fraction=share,
                prefix_group="shared",
                prefix_tokens=512,
                input_tokens=workload.Gaussian(
                    mean_tokens=256, std_dev_tokens=100, min_tokens=64, max_tokens=512
                ),
                output_tokens=workload.Exponential(mean_tokens=128, min_tokens=16, max_tokens=1024),
            )
            for name, share in {"critical": 0.33, "standard": 0.34, "sheddable": 0.33}.items()
        ],
    )


def prefix_groups(requests_per_s, num_requests):
    """24 groups by Zipf's law, each with a prefix of 2,048 tokens; 128 unique, 64 output."""
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=num_requests,
        clients=[
            workload.Client(
                name=f"group {rank} {name}",
                slo_class=name,
                rate_fraction=share / rank / sum(1 / one for one in range(1, 25)),
                prefix_group=f"group {rank}",
                prefix_tokens=2048,
                input_tokens=workload.Fixed(tokens=128),
                output_tokens=workload.Fixed(tokens=64),
            )
            for rank in range(1, 25)
            for name, share in {"critical": 0.2, "standard": 0.4, "sheddable": 0.4}.items()
        ],
    )


def weighted(prefix, queue, kv=0):
    """The routing of the experiments."""
    scorers = [router.PrefixAffinity(weight=prefix), router.ActiveRequests(weight=queue)]
    if kv:
        scorers.append(router.KvUtilization(weight=kv))
    return router.Weighted(scorers=scorers, picker=router.Best(ties="first"))


STRONG, PLAIN = weighted(4, 3), weighted(3, 2, 2)
BY_CLASS = blis.iteration_14().scheduler


def fleet(load, admission="always_admit", routing=STRONG, scheduler="fcfs"):
    """Eight instances, each on two H100."""
    return spillway.Simulation(
        workload=load,
        slo_classes=[
            workload.SloClass(name=name, priority=PRIORITIES[name], target_ttft_s=target_s)
            for name, target_s in TARGETS_S.items()
        ],
        gateway=gateway.Gateway(admission=admission),
        router=routing,
        instances=profiles.BLIS_SERVER.replace(
            count=8,
            scheduler=scheduler,
            output_overhead="reported",
        ),
    )


ESTIMATORS = {
    "E0": "queue_depth",
    "E1": "priority_aware",
    "E2": "token_backlog",
    "E3": "seats_and_memory",
}


def predictive(estimator, **settings):
    """Admission by predicted TTFT; the budgets are the targets of the classes."""
    budgets = [
        gateway.TtftBudget(slo_class=name, budget_s=target) for name, target in TARGETS_S.items()
    ]
    return gateway.PredictiveTtft(estimator=ESTIMATORS[estimator], budgets=budgets, **settings)


# %% [markdown]
# ## The matrix
#
# `SloGated` rejects standard requests while 10 requests, and sheddable ones while 5 requests, wait
# in the longest queue.
# `PredictiveTtft` rejects requests whose first token is predicted to be late on every instance.
# Neither policy rejects critical requests.
# The estimators differ in the predicted wait:
#
# - **E0**: 7 ms (20 ms with 24 groups) for each request that the instance reports as waiting;
# - **E1**: the same, but only for requests that are served earlier, plus the remainder of the
#   current step;
# - **E2**: the steps that the tokens of those requests fill;
# - **E3**: the same, plus the time until a seat in the batch and KV memory are free.

# %%
LOADS = {
    "burst, 2,000/s": (orthogonal(2000, min(SUSTAINED, 2_000)), 0.007),
    "1,100/s": (orthogonal(1100, SUSTAINED), 0.007),
    "2,000/s": (orthogonal(2000, SUSTAINED), 0.007),
    "24 groups, 1,600/s": (prefix_groups(1600, SUSTAINED), 0.02),
}


def configurations(load, avg_step_s):
    """The matrix of the experiment with its missing controls."""
    gate = gateway.SloGated()

    def predicted(estimator, ahead="same_or_higher"):
        return predictive(estimator, avg_step_s=avg_step_s, ahead=ahead)

    return {
        "1 baseline": fleet(load, routing=PLAIN),
        "2 SLO gate": fleet(load, gate, scheduler=BY_CLASS),
        "3 predictive E0": fleet(load, predicted("E0"), scheduler=BY_CLASS),
        "3 predictive E3": fleet(load, predicted("E3"), scheduler=BY_CLASS),
        "4 predictive E0 only": fleet(load, predicted("E0", "all"), PLAIN),
        "4 predictive E3 only": fleet(load, predicted("E3", "all"), PLAIN),
        "5 round robin": fleet(load, routing="round_robin"),
        "6 priority only": fleet(load, scheduler=BY_CLASS),
        "7 admission only (gate)": fleet(load, gate),
    }


matrix = {}
for load, (requests, avg_step_s) in LOADS.items():
    simulations = configurations(requests, avg_step_s)
    seeds = range(2 * len(SEEDS)) if load.startswith("burst") else SEEDS
    every = spillway.run_many(list(simulations.values()), seeds=seeds)
    matrix[load] = dict(zip(simulations, every, strict=True))


def goodput(results):
    return results.summary()["goodput"].mean


figure, axes = plt.subplots(2, 2, figsize=(11, 6.5), layout="constrained", sharex=True, sharey=True)
for ax, (load, found) in zip(axes.flat, matrix.items(), strict=True):
    plots.intervals(found, "goodput", ax=ax)
    ax.set_title(load, loc="left", fontsize="medium")
    ax.set(xlim=(0, 1.02))

# %%
for load in ("burst, 2,000/s", "2,000/s"):
    print(f"{load:24}  p99 of TTFT, critical  of all     completed  rejected  hit rate")
    for name, results in matrix[load].items():
        figures, critical = results.summary(), results.by_class()["critical"]
        print(
            f"{name:24}  {critical['p99_ttft_ms'].mean:18,.0f} ms  "
            f"{figures['p99_ttft_ms'].mean:6,.0f} ms  {figures['completed'].mean:9,.0f}  "
            f"{figures['rejected'].mean / figures['offered'].mean:8.1%}  "
            f"{figures['cache_hit_rate'].mean:8.3f}"
        )
    print()

# %% [markdown]
# The length of the run is decisive.
# In the burst, all configurations are within three points of each other.
# At 1,100 requests/s, slightly above capacity, configurations that reject hardly any requests are
# at least as good as the gate for as long as the run lasts.
# In a sustained overload, the same predictor is far below the gate; with 24 groups, the gate is
# below all others but round robin.
# That last panel is about routing, not about admission, as shown below.
#
# Where the predictor rejects no request, its configuration *is* "priority only", and the
# differences from the gate are those of the priorities.
#
# ## Budgets are not targets
#
# The budgets above equal the targets: a request is admitted even if its first token is predicted
# just in time.
# `headroom` multiplies all budgets.
# The four estimators are compared with the gate at the best of several thresholds (10 and 5 times
# 1/4 to 4).

# %%
HEADROOMS = (0.1, 0.3, 1) if FAST else (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1)
FACTORS = (1, 4) if FAST else (0.25, 0.5, 1, 2, 4)
PANELS = {
    "2,000/s, in order of arrival": ("2,000/s", "all", "fcfs"),
    "2,000/s, by class and age": ("2,000/s", "same_or_higher", BY_CLASS),
    "24 groups, in order of arrival": ("24 groups, 1,600/s", "all", "fcfs"),
}


figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained", sharey=True)
by_headroom = {}
for ax, (title, (load, ahead, scheduler)) in zip(axes, PANELS.items(), strict=True):
    requests, avg_step_s = LOADS[load]
    gates = [
        gateway.SloGated(standard_threshold=10 * factor, sheddable_threshold=5 * factor)
        for factor in FACTORS
    ]
    predicted = [
        predictive(one, headroom=headroom, ahead=ahead, avg_step_s=avg_step_s)
        for one in ESTIMATORS
        for headroom in HEADROOMS
    ]
    every = spillway.run_many(
        [fleet(requests, one, scheduler=scheduler) for one in ["always_admit", *gates, *predicted]],
        seeds=SEEDS[:3],
    )
    all_admitted, best_gate = goodput(every[0]), max(map(goodput, every[1 : 1 + len(gates)]))
    rest = iter(every[1 + len(gates) :])
    shares = {}
    for name in ESTIMATORS:
        by_value = {headroom: next(rest) for headroom in HEADROOMS}
        shares[name] = max(map(goodput, by_value.values()))
        plots.sweep(by_value, "goodput", setting="headroom", label=name, log="x", ax=ax)
    ax.axhline(best_gate, color="gray", label="SLO gate, best")
    ax.axhline(all_admitted, color="gray", linestyle=":", label="all admitted")
    ax.set_title(title, loc="left", fontsize="medium")
    ax.set_title("", loc="right")
    ax.set(ylim=(0, 1))
    by_headroom[title] = (best_gate, shares)
    tops = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    print(f"{title:31} best: SLO gate {best_gate:.3f}, {tops}")
legend = axes[2].legend(fontsize="small", loc="lower left", ncols=2)

# %% [markdown]
# With headroom 1, where budgets equal targets, no estimator performs well at 2,000 requests/s.
# Queues are then as long as the budget allows, and every error of the estimate, such as a step that
# is longer than predicted, makes a request late.
# With a tenth to a fifth of the targets, all estimators are about as good as the best gate, E2
# slightly better.
# They differ in their tolerance of a wrong budget: E0 tolerates small budgets, E3 large ones,
# because it accounts for the seats in the batch that requests ultimately wait for.
#
# In queues by class, more important requests that arrive later overtake admitted ones, and no
# estimate made at admission can account for them.
# At the best budgets that costs a point; at large ones it helps, because at least the critical
# requests are served in time.
#
# With many prefixes, the gate is worse than no admission control, and the predictor is better. That
# is not due to prediction. Routing by prefix 4, queue 3 sends the most popular prefix to one
# instance, whose queue grows while the other seven are idle; the gate rejects requests because of
# that one queue, the predictor only those that no instance can serve in time. With a router that
# spreads the load, the same fleet needs no admission control at all:

# %%
groups, _ = LOADS["24 groups, 1,600/s"]
SPREADS = {
    "prefix 4, queue 3": STRONG,
    "prefix 3, queue 2, KV 2": PLAIN,
    "prefix 2, queue 3": weighted(2, 3),
}
every = spillway.run_many(
    [fleet(groups, routing=routing) for routing in SPREADS.values()], seeds=SEEDS
)
spread = dict(zip(SPREADS, map(goodput, every), strict=True))
for name, share in spread.items():
    print(f"24 groups, all admitted, {name:24} goodput {share:.3f}")

# %% [markdown]
# If the router concentrates the load, any admission policy looks good.
#
# ## Stale load reports
#
# E0 reads the queues from a load report; E1 to E3 count the requests that the gateway has sent.
# If the reports are stale, every request of a burst sees the same empty fleet.
# `corrects_staleness` adds the requests sent since the report.

# %%
PERIODS_S = (0.01, 0.2, 5) if FAST else (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
WITH_REPORTS = {
    "SLO gate": gateway.SloGated(),
    "E0, not corrected": predictive("E0", headroom=0.2, ahead="all", corrects_staleness=False),
    "E0, corrected": predictive("E0", headroom=0.2, ahead="all"),
    "E3": predictive("E3", headroom=0.2, ahead="all"),
}
burst, _ = LOADS["burst, 2,000/s"]
every = spillway.run_many(
    [
        fleet(burst, policy).replace(signals=signals.Scraped(period_s=period))
        for policy in WITH_REPORTS.values()
        for period in PERIODS_S
    ],
    seeds=SEEDS,
)
rest = iter(every)
stale = {name: {period: next(rest) for period in PERIODS_S} for name in WITH_REPORTS}


def share_admitted(result):
    summary = result.summary()
    return 1 - summary["rejected"] / summary["offered"]


figure = plots.sweeps(
    stale,
    [share_admitted, "p99_ttft_ms"],
    setting="time between two load reports (s)",
    log="x",
)
figure.set_size_inches(9.5, 3.6)

# %% [markdown]
# The gate and the uncorrected E0 admit every request once the report is older than the burst,
# whatever their thresholds.
# The correction removes that effect at little cost; counting the sent requests works as well.
#
# ## Wrong coefficients
#
# The estimators need the duration of a step.
# Below, all coefficients of E3 are off by a factor: at 1/4, the gateway assumes that the servers
# are four times as fast as they are.
# `margin` adds a learned correction to the estimate, so that nine of ten first tokens arrive within
# it; `calibration` fits the coefficients themselves to the observed first tokens.

# %%
OFF = (0.25, 1, 4) if FAST else (0.25, 0.5, 1, 2, 4)
LEARNING = {
    "as set": {},
    "margin": {"margin": gateway.TtftMargin(quantile=0.9)},
    "calibration": {
        "calibration": gateway.TtftCalibration(forgetting=0.999, initial_variance=0.01)
    },
}
steady = orthogonal(1400, SUSTAINED)
every = spillway.run_many(
    [
        fleet(
            steady,
            predictive(
                "E3",
                headroom=0.5,
                ahead="all",
                beta0_us=6910.42 * factor,
                beta_prefill_us=17.67 * factor,
                beta_decode_us=2.84 * factor,
                **settings,
            ),
        )
        for settings in LEARNING.values()
        for factor in OFF
    ],
    seeds=SEEDS,
)
rest = iter(every)
learned = {name: {factor: next(rest) for factor in OFF} for name in LEARNING}
figure = plots.sweeps(
    learned, ["goodput", "p99_ttft_ms"], setting="coefficients set / true coefficients", log="x"
)
figure.set_size_inches(9.5, 3.6)

# %% [markdown]
# With either way of learning, goodput no longer depends on coefficients that are off by a factor of
# four; with the calibration, nor does the p99.
#
# ## New prompts locked out
#
# A prompt that no cache holds takes longer.
# When the wait is just below the budget, such prompts are the ones that are rejected, so no cache
# ever stores them.
# Eight groups of prompts warm up and then overload two instances; a ninth begins after 10 s.
# `admission_by_group_age` reports the admitted share of new and of established groups.

# %%
CURES = {
    "no protection": {},
    "floor: 0.5 requests/s of each group": {"floor_per_s": 0.5},
    "bonus: the first 4 of a group": {"bonus_requests": 4},
    "warming slots: half of the budget": {"warming_share": 0.5},
}


def late_group(**protection):
    """A new prefix arrives while others keep two instances busy."""

    def client(name, requests_per_s, start_s):
        return workload.Client(
            name=f"{name} from {start_s} s",
            requests_per_s=requests_per_s,
            start_s=start_s,
            duration_s=16 - start_s,
            prefix_group=name,
            prefix_tokens=2048,
            input_tokens=workload.Fixed(tokens=128),
            output_tokens=workload.Fixed(tokens=32),
        )

    established = [client(f"group {i}", 2, 0) for i in range(8)]
    overload = [client(f"group {i}", 150, 7) for i in range(8)]
    return spillway.Simulation(
        workload=workload.Synthetic(clients=[*established, *overload, client("late", 20, 10)]),
        gateway=gateway.Gateway(
            admission=gateway.PredictiveTtft(
                estimator="token_backlog",
                budgets=[gateway.TtftBudget(slo_class="standard", budget_s=0.1)],
                cold_start=gateway.ColdStart(**protection),
            )
        ),
        router=router.LeastLoaded(),
        instances=profiles.BLIS_SERVER.replace(count=2),
    )


print(f"{'':36} new group  others  p99 of TTFT")
for name, protection in CURES.items():
    results = spillway.simulate(late_group(**protection), seeds=SEEDS)
    tables = [result.admission_by_group_age(step_s=1, new_for_s=6) for result in results]
    rows = slice(10, 16)
    new = sum(table["new_admitted"][rows].sum() for table in tables)
    offered = sum(table["new_offered"][rows].sum() for table in tables)
    others = np.mean([np.mean(table["established_ratio"][rows]) for table in tables])
    tail = results.summary()["p99_ttft_ms"].mean
    print(f"{name:36} {new / offered:9.0%}  {others:6.0%}  {tail:8.0f} ms")
    if not protection:
        locked_out = new / offered

# %% [markdown]
# Without protection, the new group is locked out while the others are admitted.
# Any of the three cures admits it.

# %%
short, long = matrix["burst, 2,000/s"], matrix["2,000/s"]
best_gate, best = by_headroom["2,000/s, in order of arrival"]
gate_of_groups, best_of_groups = by_headroom["24 groups, in order of arrival"]


def p99(name):
    return f"{stale[name][PERIODS_S[-1]].summary()['p99_ttft_ms'].mean:.0f} ms"


Markdown(
    f"In a sustained overload at 2,000 requests/s, the published predictor (E0) has a goodput of "
    f"{goodput(long['3 predictive E0']):.0%}, the gate {goodput(long['2 SLO gate']):.0%} (in the "
    f"burst, which was the case reported, {goodput(short['3 predictive E0']):.0%} and "
    f"{goodput(short['2 SLO gate']):.0%}). The predictor lacks headroom, not accuracy: at its best "
    f"budgets, in order of arrival, its goodput is {best['E0']:.0%} (E0) to "
    f"{max(best.values()):.0%}, that of the best gate {best_gate:.0%}. With 24 prefix groups the "
    f"router is decisive: with all requests admitted, goodput is "
    f"{spread['prefix 2, queue 3']:.0%} with prefix 2, queue 3, above the best predictor "
    f"({max(best_of_groups.values()):.0%}) and the best gate ({gate_of_groups:.0%}) with prefix 4, "
    f"queue 3.\n\n"
    f"**So set** the router first. Then set `headroom` of `predictive_ttft` well below 1 (here "
    f"0.15 to 0.2); keep `corrects_staleness` (with reports every {PERIODS_S[-1]:g} s, the p99 is "
    f"{p99('E0, not corrected')} without and {p99('E0, corrected')} with it); set `calibration` "
    f"if the coefficients are uncertain, and one of the settings of `cold_start` if new prefixes "
    f"appear (without them, {locked_out:.0%} of the new group are admitted)."
)
