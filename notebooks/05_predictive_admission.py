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
# [BLIS](https://github.com/inference-sim/inference-sim), an LLM serving simulator, with four
# hypotheses:
#
# - **H14-1**: 30 to 40 % more requests are admitted than by an *SLO gate* on queue lengths, at the
#   same p99 for critical requests.
# - **H14-2**: the admitted requests find more of their prompts in the cache.
# - **H14-3**: the p99 of the time to first token stays below 100 ms at 2,000 requests/s.
# - **H14-4**: throughput is at least 95 % of the gate's.
#
# They were never tested: the predictor had an empty prefix index of its own, and its bypass for
# cold prompts admitted every request.
# The experiment also lacked the controls that its reviewers requested, *priority only* and
# *admission only*.
# This notebook runs a reduced form of it (few seeds, short runs; the complete one is
# `experiments/iteration_14`) and then asks what a predictor needs in order to be useful.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.ticker import FuncFormatter, NullLocator

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
SEEDS = range(2) if FAST else range(5)
SUSTAINED = 1_500 if FAST else 5_000  # requests

# %%
import spillway
from spillway import gateway, profiles, router, signals, workload
from spillway.report import plots
from spillway.systems.blis import presets as blis

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


def of_critical(result):
    """The p99 of TTFT of critical requests in milliseconds."""
    return float(result.by_class()["critical"]["p99_ttft_ms"])


for load, found in matrix.items():
    print(
        f"{load:24}  goodput              p99 critical (ms)  p99 of all (ms)  completed  hit rate"
    )
    for name, results in found.items():
        figures = results.summary()
        print(
            f"{name:24}  {figures['goodput']!s:19}"
            f"{results.interval(of_critical).mean:17,.0f}  {figures['p99_ttft_ms'].mean:15,.0f}  "
            f"{figures['completed'].mean:9,.0f}  {figures['cache_hit_rate'].mean:8.3f}"
        )
    print()

# %%
fig, axes = plt.subplots(1, len(LOADS), figsize=(11, 3.4), layout="constrained", sharey=True)
KINDS = {"SLO gate": 1, "gate": 1, "predictive": 2}
for ax, (load, found) in zip(axes, matrix.items(), strict=True):
    for row, (name, results) in enumerate(found.items()):
        kind = next((style for word, style in KINDS.items() if word in name), 0)
        share = results.summary()["goodput"]
        ax.errorbar(
            share.mean,
            row,
            xerr=share.half_width,
            fmt="os^"[kind],
            capsize=3,
            markersize=5,
            color=plots.STYLES[kind]["color"],
        )
    ax.set(title=load, xlim=(0, 1.05))
    ax.title.set_fontsize("medium")
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.grid(alpha=0.3)
axes[0].set_yticks(range(len(found)), found)
axes[0].invert_yaxis()
label = fig.supxlabel(
    "goodput: first token in time, share of offered requests (95 % intervals)",
    fontsize="medium",
)

# %% [markdown]
# The length of the run is decisive.
# In the burst, all configurations are within three points of each other.
# At 1,100 requests/s, slightly above capacity, configurations that reject hardly any requests are
# ahead for as long as the run lasts.
# In a sustained overload, the same predictor is far below the gate; with 24 groups, the gate is
# below all others but round robin.
# That last panel is about routing, not about admission, as shown below.
#
# ## The hypotheses
#
# A hypothesis is confirmed or refuted if the paired 95 % interval excludes the opposite.
# Where the predictor rejects no request at all, its configuration *is* "priority only", and no
# hypothesis about prediction applies. H14-1 does not apply either where too few requests arrive for
# 1.3 times the completions of the gate.
# H14-2 is omitted: it states that rejecting *cold* prompts keeps caches warm, and after the first
# few requests no prompt here is cold.


# %%
def difference(mine, other, figure, factor=1, less=0):
    """A figure minus `factor` times that of the other and a constant, seed by seed."""
    others = {result.seed: figure(result) for result in other}
    return mine.interval(lambda result: figure(result) - factor * others[result.seed] - less)


def verdict(*intervals):
    """Confirmed if all these differences are above zero."""
    if any(one.high is not None and one.high < 0 for one in intervals):
        return "refuted"
    is_above = all(one.low is not None and one.low > 0 for one in intervals)
    return "confirmed" if is_above else "undecided"


def figure(name):
    return lambda result: float(result.summary()[name])


def more_at_the_same_p99(mine, gated):
    """At least 1.3 times the completions and at most 1.1 times the critical p99 of the gate."""
    return verdict(
        difference(mine, gated, figure("completed"), 1.3),
        difference(gated, mine, of_critical, 1 / 1.1),
    )


def total(results, name):
    return sum(figure(name)(result) for result in results)


verdicts = {}
print(f"{'':20}  estimator  rejected  H14-1           by priority only  H14-3           H14-4")
for load, found in matrix.items():
    gated, control = found["2 SLO gate"], found["6 priority only"]
    can_complete_more = total(gated, "offered") >= 1.3 * total(gated, "completed")
    for estimator in ("E0", "E3"):
        mine = found[f"3 predictive {estimator}"]
        rejects = total(mine, "rejected") > 0
        applies = {
            "H14-1": rejects and can_complete_more,
            "by priority only": can_complete_more,
            "H14-3": rejects and "2,000" in load,
            "H14-4": rejects,
        }
        of = {
            "H14-1": more_at_the_same_p99(mine, gated),
            "by priority only": more_at_the_same_p99(control, gated),
            "H14-3": verdict(mine.interval(lambda result: 100 - figure("p99_ttft_ms")(result))),
            "H14-4": verdict(difference(mine, gated, figure("output_throughput"), 0.95)),
        }
        verdicts[load, estimator] = {
            name: of[name] if applies[name] else "not applicable" for name in of
        }
        share = total(mine, "rejected") / total(mine, "offered")
        print(
            f"{load:20}  {estimator:9}  {share:8.1%}  "
            + "  ".join(
                f"{one:{max(14, len(name))}}" for name, one in verdicts[load, estimator].items()
            )
        )

# %% [markdown]
# - **H14-1** can hold in the burst only, where *priority only*, which rejects no request, has
#   as many completions: the predictor adds nothing.
# - **H14-3** does not hold with budgets equal to the targets, nor does it hold for the gate.
# - **H14-4** holds wherever it applies: a gateway that admits more requests serves more.
#   It does not say how many are served *in time*.
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


def goodput(results):
    return results.summary()["goodput"].mean


fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained", sharey=True)
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
    shares = np.array([goodput(one) for one in every[1 + len(gates) :]]).reshape(4, -1)
    by_headroom[title] = (all_admitted, best_gate, shares)
    for number, (name, line) in enumerate(zip(ESTIMATORS, shares, strict=True)):
        ax.plot(
            HEADROOMS, line, marker="os^D"[number], markersize=5, label=name, **plots.STYLES[number]
        )
    ax.axhline(best_gate, color="black", linewidth=1, label="SLO gate, best")
    ax.axhline(all_admitted, color="black", linestyle=":", linewidth=1, label="all admitted")
    ax.set(title=title, xlabel="headroom", xscale="log", ylim=(0, 1))
    ax.title.set_fontsize("medium")
    ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(alpha=0.3)
    tops = ", ".join(
        f"{name} {line.max():.3f}" for name, line in zip(ESTIMATORS, shares, strict=True)
    )
    print(f"{title:31} best: SLO gate {best_gate:.3f}, {tops}")
axes[0].set_ylabel("goodput")
legend = axes[2].legend(fontsize="small", loc="lower left", ncols=2)

# %% [markdown]
# On the right, where budgets equal targets, no estimator performs well.
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
(all_admitted,) = spillway.run_many([fleet(burst)], seeds=SEEDS)
fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
stale = {}
for number, name in enumerate(WITH_REPORTS):
    rows = every[number * len(PERIODS_S) : (number + 1) * len(PERIODS_S)]
    figures = stale[name] = [one.summary() for one in rows]
    style = plots.STYLES[number] | {"marker": "os^D"[number], "markersize": 5}
    admitted = [one["completed"].mean / one["offered"].mean for one in figures]
    left.plot(PERIODS_S, admitted, label=name, **style)
    right.plot(PERIODS_S, [one["p99_ttft_ms"].mean for one in figures], **style)
right.axhline(
    all_admitted.summary()["p99_ttft_ms"].mean,
    color="black",
    linestyle=":",
    linewidth=1,
    label="all admitted",
)
left.set(ylabel="requests admitted", ylim=(0.6, 1.03))
left.yaxis.set_major_formatter("{x:.0%}")
right.set(ylabel="p99 of TTFT (ms)", ylim=(0, None))
for ax in (left, right):
    ax.set(xlabel="time between two load reports", xscale="log")
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda s, _: f"{s * 1000:g} ms" if s < 1 else f"{s:g} s")
    )
    ax.set_xticks([0.01, 0.1, 1, 5])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.3)
legend = fig.legend(loc="outside upper center", ncols=5, fontsize="small")

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
    "calibration, fast start": {
        "calibration": gateway.TtftCalibration(forgetting=0.999, initial_variance=1000)
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
fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
learned = {}
for number, name in enumerate(LEARNING):
    rows = every[number * len(OFF) : (number + 1) * len(OFF)]
    figures = learned[name] = [one.summary() for one in rows]
    style = plots.STYLES[number] | {"marker": "os^D"[number], "markersize": 5}
    left.plot(OFF, [one["goodput"].mean for one in figures], label=name, **style)
    right.plot(OFF, [one["p99_ttft_ms"].mean for one in figures], **style)
left.set(ylabel="goodput", ylim=(0, 1))
left.yaxis.set_major_formatter("{x:.0%}")
right.set(ylabel="p99 of TTFT (ms)", ylim=(0, None))
for ax in (left, right):
    ax.set(xlabel="coefficients set / true coefficients", xscale="log")
    ax.set_xticks(OFF, [f"1/{1 / one:g}" if one < 1 else f"{one:g}" for one in OFF])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.3)
legend = left.legend(fontsize="small", loc="lower center")

# %% [markdown]
# Both ways of learning compensate for coefficients that are off by a factor of four.
# But a fit that adapts too fast (a large `initial_variance`) depends on the first requests, all of
# which see an idle fleet.
# It converges to coefficients that predict too long a wait, rejects requests, and then observes few
# first tokens that would correct it.
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


fig, ax = plt.subplots(figsize=(8.5, 3.4), layout="constrained")
for number, (name, protection) in enumerate(CURES.items()):
    results = spillway.simulate(late_group(**protection), seeds=SEEDS)
    tables = [result.admission_by_group_age(step_s=1, new_for_s=6) for result in results]
    rows = slice(10, 16)
    new = np.sum([table["new_admitted"][rows] for table in tables], axis=0) / np.sum(
        [table["new_offered"][rows] for table in tables], axis=0
    )
    middle = tables[0]["start_s"][rows] + 0.5
    style = plots.STYLES[number] | {"marker": "os^D"[number], "markersize": 5}
    ax.plot(middle, new, label=name, **style)
    others = np.mean([np.mean(table["established_ratio"][rows]) for table in tables])
    tail = results.summary()["p99_ttft_ms"].mean
    print(f"{name:36} established groups {others:.0%} admitted, p99 of TTFT {tail:.0f} ms")
    if not protection:
        locked_out = new.mean()
ax.set(xlabel="arrival (s)", ylabel="admitted of the new group", ylim=(-0.03, 1.05), xlim=(10, 16))
ax.yaxis.set_major_formatter("{x:.0%}")
ax.grid(alpha=0.3)
legend = ax.legend(fontsize="small", loc="upper right")

# %% [markdown]
# Without protection, the new group is locked out permanently while the others are admitted.
# Any of the three cures admits it, and once the instances cache its prefix, it does as well as the
# others.

# %%
short, long = matrix["burst, 2,000/s"], matrix["2,000/s"]
_, gate_best, of_queue = by_headroom["2,000/s, in order of arrival"]
_, gate_of_groups, of_groups = by_headroom["24 groups, in order of arrival"]
Markdown(
    f"**Takeaway.** "
    f"Where the predictor rejects hardly any requests, the priorities cause the differences. "
    f"In a sustained overload at 2,000 requests/s, "
    f"the published predictor (E0) has a goodput of "
    f"{goodput(long['3 predictive E0']):.0%}, the gate "
    f"{goodput(long['2 SLO gate']):.0%} (in the burst, which was the case reported, "
    f"{goodput(short['3 predictive E0']):.0%} and {goodput(short['2 SLO gate']):.0%}). "
    f"The predictor lacks headroom, not accuracy: with budgets of a fraction of the "
    f"targets and queues in order of arrival, its goodput is {of_queue[0].max():.0%} (E0) to "
    f"{of_queue.max():.0%}, that of the best gate {gate_best:.0%}. "
    f"With 24 prefix groups the router is decisive: with all requests admitted, goodput is "
    f"{spread['prefix 2, queue 3']:.0%} with prefix 2, queue 3, above the best predictor "
    f"({of_groups.max():.0%}) and the best gate ({gate_of_groups:.0%}) with prefix 4, queue 3. "
    f"A better estimator mainly makes the budget less critical. "
    f"A predictor should count the requests it has sent (with reports every {PERIODS_S[-1]:g} s, "
    f"the uncorrected one has a p99 of {stale['E0, not corrected'][-1]['p99_ttft_ms'].mean:.0f} "
    f"ms, the corrected one {stale['E0, corrected'][-1]['p99_ttft_ms'].mean:.0f} ms), "
    f"learn slowly, and admit new prompts (without protection, {locked_out:.0%} are)."
)
