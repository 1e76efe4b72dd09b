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
# # When do prefill and decode pools pay?
#
# A server that computes long prompts delays the answers of all others in its batch.
# Two pools separate both: one computes prompts, their KV blocks are moved over a link, and the
# other one continues with the answers.
# The price is a second queue, and a split of the servers that fits one mix of requests only.
# This notebook asks when that pays, how to split eight servers, which prompts should stay out of
# the prefill pool, and what happens in overload.
# What the settings mean: [prefill and decode pools](../docs/background/pools.md).
#
# It takes about 20 s of processor time.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown

from spillway import Simulation, instance, metrics, router, run_many, simulate, workload
from spillway.report import plots

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
REQUESTS = 300 if FAST else 1_500
SEEDS = range(2) if FAST else range(3)

SERVER = instance.Server(model="llama-3.1-8b", gpu="h100").group.replace(
    engine_rules=instance.EngineRules()
)
TARGETS = workload.SloClass(name="standard", target_ttft_s=1, target_tpot_s=0.012)


def traffic(requests_per_s, documents=0.5):
    """Chats of 300 tokens, and a share of documents of about 4,000; both get about 200 tokens."""
    lengths = {
        "chat": workload.Fixed(tokens=300),
        "documents": workload.Lognormal(mu=8.2, sigma=0.4, max_tokens=12_000),
    }
    shares = {"chat": 1 - documents, "documents": documents}
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        num_requests=REQUESTS,
        clients=[
            workload.Client(
                name=name,
                tenant=name,
                rate_fraction=shares[name],
                input_tokens=lengths[name],
                output_tokens=workload.Exponential(mean_tokens=200, max_tokens=2000),
            )
            for name in lengths
        ],
    )


def together(load, count=8):
    """Servers that do both."""
    return Simulation(workload=load, slo_classes=[TARGETS], instances=SERVER.replace(count=count))


def apart(load, prefill, count=8, **pools):
    """Of `count` servers, `prefill` compute prompts and the others answers."""
    return together(load).replace(
        instances=[
            SERVER.replace(role="prefill", count=prefill),
            SERVER.replace(role="decode", count=count - prefill),
        ],
        disaggregation=router.Disaggregation(**pools),
        metrics=metrics.Metrics(timeline_step_s=0.1),
    )


# %% [markdown]
# ## What pools change
#
# The same eight servers, together and as four and four.

# %%
LOAD = traffic(40)
both = {"together": simulate(together(LOAD), 1), "apart": simulate(apart(LOAD, 4), 1)}
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for axis, metric in zip(axes, ("ttft_s", "tpot_s"), strict=True):
    plots.latency_cdf(both, metric, ax=axis, log=True)
    axis.grid(alpha=0.3)

# %%
FIGURES = ("goodput", "p50_ttft_ms", "p99_ttft_ms", "p50_tpot_ms", "p99_tpot_ms")
for name, result in both.items():
    figures = result.summary()
    print(f"{name:9}", *(f"{figure} {figures[figure]:.3g}" for figure in FIGURES), sep="  ")

# %% [markdown]
# Time per output token is lower and hardly varies, because no prompt gets into the steps of the
# decode pool.
# The first token comes later: half of the servers compute the prompts of all, and then the blocks
# are on their way.

# %%
for name, value in both["apart"].time_by_cause().mean_s().items():
    if value > 1e-4:
        print(f"{name:18} {value * 1e3:8.1f} ms")

# %% [markdown]
# The bars of the first requests show their legs: prompts of documents take longest.

# %%
axes = plots.requests(both["apart"], 0, 0.8)
axes.set_xlim(0, 1.3)
axes.figure.set_size_inches(10, 4)

# %% [markdown]
# ## Splitting the servers
#
# How many of eight servers should compute prompts depends on the load, and more so on the mix.

# %%
SPLITS = range(1, 8)
MIXES = {"a tenth documents": 0.1, "half documents": 0.5, "nine tenths documents": 0.9}
RATE = 40
splits = {}
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
for (name, share), color in zip(MIXES.items(), ("C0", "C1", "C2"), strict=True):
    load = traffic(RATE, share)
    systems = [together(load), *(apart(load, prefill) for prefill in SPLITS)]
    goodput = [found.summary()["goodput"].mean for found in run_many(systems, SEEDS)]
    splits[name] = goodput
    axis.plot(SPLITS, goodput[1:], "o-", color=color, label=name)
    axis.axhline(goodput[0], color=color, linestyle=":")
    print(f"{name}: together {goodput[0]:.3f}, apart", *(f"{value:.3f}" for value in goodput[1:]))
axis.set(xlabel="prefill servers of eight (dotted: all do both)", ylabel="goodput", ylim=(0, 1.02))
axis.legend()
axis.grid(alpha=0.3)
# %% [markdown]
# Few documents forgive nearly every split.
# With many, one split is right and its neighbors are not; but the right one is far better than
# servers that do both, whose answers are too slow.

# %% [markdown]
# ## Which prompts stay out
#
# A decider lets the decode pool compute some prompts itself.
# llm-d decides by the tokens that the decode server lacks, and chooses the decode server first.
# Dynamo asks for the load of the prefill pool, and has a veto by the decode pool.

# %%
DECIDERS = {
    "all prompts": {},
    "llm-d, 512 tokens": {
        "order": "decode_first",
        "decider": router.UncachedTokens(min_uncached_tokens=512),
    },
    "Dynamo, by load": {
        "decider": router.Conditional(
            rule="prefill_load", prefill_busy_threshold=1, decode_busy_threshold=0.8
        )
    },
}
busy = traffic(55)
simulations = {name: apart(busy, 4, **pools) for name, pools in DECIDERS.items()}
simulations = {"together": together(busy)} | simulations
runs = dict(zip(simulations, run_many(list(simulations.values()), SEEDS), strict=True))
for name, found in runs.items():
    figures = found.summary()
    legs = [run.ledger.get("legs", {"local": REQUESTS}) for run in found]
    local = np.mean([counted["local"] for counted in legs]) / REQUESTS
    print(
        f"{name:18} computed where it is continued {local:4.0%}",
        *(f"{figure} {figures[figure].mean:.3g}" for figure in FIGURES),
        sep="  ",
    )

# %% [markdown]
# With llm-d's decider the chats stay out of the prefill pool: the median first token comes sooner,
# for a little more time per output token.
# By load, documents go to the decode pool too, and answers become too slow there.

# %% [markdown]
# ## In overload
#
# Dynamo asks the decode pool when a prompt is ready, llm-d at the arrival of the request.
# With room for few requests at each server, many prompts are computed in vain in the first case.

# %%
limit = router.Thresholds(max_in_flight=24, if_none="reject")
crowd = traffic(110)
orders = {}
for order in ("prefill_first", "decode_first"):
    limited = apart(crowd, 4, order=order).replace(
        router=router.Weighted(filters=[limit], scorers=[router.LoadBalance()])
    )
    orders[order] = simulate(limited, 1)
    legs = orders[order].ledger["legs"]
    wasted = 1 - legs["transfers_begun"] / legs["prefill_ended"]
    goodput = orders[order].summary()["goodput"]
    print(f"{order:14} goodput {goodput:.2f}, prompts computed in vain {wasted:.0%}")

# %% [markdown]
# The gateway's figure has lines for each pool: the decode pool is full, and the prefill pool goes
# on computing.

# %%
figure = plots.gateway(orders["prefill_first"])

# %% [markdown]
# A gate that closes by the larger saturation of both pools is the other trap:
# [the experiment](../experiments/two_pools/README.md) has figures of both.
# How to take pools from the files of a deployment, and to write them:
# [the guide](../docs/guides/prefill_and_decode_pools.md).

# %%


def percent(share):
    return f"{share:.0%}"


def goodput_of(name):
    return percent(runs[name].summary()["goodput"].mean)


most = splits["nine tenths documents"]
best = 1 + int(np.argmax(most[1:]))
Markdown(
    f"With nine tenths documents, {best} of eight servers for prompts keep the targets of "
    f"{percent(most[best])} of the requests, one fewer {percent(most[best - 1])}, one more "
    f"{percent(most[best + 1])}, and servers that do both {percent(most[0])}. With a tenth, those "
    f"keep {percent(splits['a tenth documents'][0])}, and pools gain nothing.\n\n"
    f"**So set** pools if answers must be steady and prompts are long, and split the servers by a "
    f"sweep over your mix. Let the decode pool compute short prompts "
    f"(`uncached_tokens`: goodput {goodput_of('llm-d, 512 tokens')}, with a sooner first token), "
    f"not long ones when prefill is busy (`prefill_load`: {goodput_of('Dynamo, by load')}). Where "
    f"servers refuse, ask the decode pool first: goodput is "
    f"{percent(orders['decode_first'].summary()['goodput'])} instead of "
    f"{percent(orders['prefill_first'].summary()['goodput'])} here."
)
