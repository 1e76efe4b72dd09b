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
# # How large must a token bucket be?
#
# A token bucket holds 10,000 tokens and refills with 1,000 tokens per second.
# Prompts of 512 tokens ask to be admitted.
# The usual arithmetic says that 1000 / 512 ≈ 1.95 requests per second pass for ever.
# It also says that a burst of 10000 / 512 ≈ 19 requests passes at once.
#
# - Is that so?
# - Whom does the bucket turn away once prompts differ in length?
# - Which capacity and which refill admit 99 % of a given workload?

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
DURATION_S = 600 if FAST else 7200
SEEDS = range(2) if FAST else range(8)

# %%
import spillway
from spillway import gateway, workload
from spillway.report import plots

CAPACITY_TOKENS = 10_000
REFILL_TOKENS_PER_S = 1_000
PROMPT_TOKENS = 512

bucket = gateway.TokenBucket(
    capacity_tokens=CAPACITY_TOKENS, refill_tokens_per_s=REFILL_TOKENS_PER_S
)
guide = spillway.Simulation(gateway=gateway.Gateway(admission=bucket), instances={"count": 4})

# %% [markdown]
# Every request asks for a single output token, so the servers are never short of anything.
# The bucket alone decides.
#
# ## A burst
#
# All requests of this trace arrive at the same instant.
# The bucket starts full.

# %%
BURST = 40

burst = spillway.trace(
    arrival_s=np.zeros(BURST),
    input_tokens=np.full(BURST, PROMPT_TOKENS),
    output_tokens=np.ones(BURST, dtype=int),
)
result = spillway.simulate(guide.replace(workload=burst))
admitted = result.ledger["admitted"]
left = CAPACITY_TOKENS - admitted * PROMPT_TOKENS
print(f"{admitted} of {BURST} admitted, rejected: {result.ledger['rejected']}")
print(f"{left} tokens are left; the next prompt lacks {PROMPT_TOKENS - left}")
assert admitted == CAPACITY_TOKENS // PROMPT_TOKENS

# %% [markdown]
# The rest of the bucket is not lost.
# Let another prompt knock every hundredth of a second.
# The first one passes when the refill has made up for what is lacking.

# %%
knocks = np.arange(1, 101) / 100
knocking = spillway.trace(
    arrival_s=np.concatenate([np.zeros(BURST), knocks]),
    input_tokens=np.full(BURST + len(knocks), PROMPT_TOKENS),
    output_tokens=np.ones(BURST + len(knocks), dtype=int),
)
requests = spillway.simulate(guide.replace(workload=knocking)).requests
passed_s = requests["arrival_s"][BURST:][requests["outcome"][BURST:] == "completed"]
print(f"first to pass after the burst: {passed_s[0]:.2f} s")
print(f"expected: {(PROMPT_TOKENS - left) / REFILL_TOKENS_PER_S:.2f} s")

# %% [markdown]
# ## A long overload
#
# Now the same prompts arrive at equal gaps and far too fast, for a long time.
# The first half of the run is warm-up: the full bucket of the start does not count.


# %%
def offer(requests_per_s, input_tokens, arrivals="poisson", duration_s=DURATION_S):
    """The workload of one client for `duration_s` seconds."""
    return workload.Synthetic(
        requests_per_s=requests_per_s,
        duration_s=duration_s,
        clients=workload.Client(
            arrivals=arrivals,
            input_tokens=input_tokens,
            output_tokens=workload.Fixed(tokens=1),
        ),
    )


OVERLOAD_PER_S = 10
equal = workload.Fixed(tokens=PROMPT_TOKENS)

overloaded = guide.replace(
    workload=offer(OVERLOAD_PER_S, equal, arrivals="constant"), warm_up_s=DURATION_S / 2
)
result = spillway.simulate(overloaded)
summary = result.summary()
sustained_per_s = (summary["offered"] - summary["rejected"]) / (DURATION_S / 2)
print(f"offered   {summary['offered'] / (DURATION_S / 2):.3f} requests/s")
print(f"admitted  {sustained_per_s:.3f} requests/s")
print(f"expected  {REFILL_TOKENS_PER_S / PROMPT_TOKENS:.3f} requests/s")

# %% [markdown]
# The first minute shows both numbers at once: the steep start is the burst, the slope the refill.
# What is admitted never exceeds capacity plus refill times elapsed time.

# %%
first_minute = guide.replace(
    workload=offer(OVERLOAD_PER_S, equal, arrivals="constant", duration_s=60)
)
ax = spillway.simulate(first_minute).plot.admitted_tokens()

# %% [markdown]
# ## How much is shed?
#
# Let the arrivals be random (Poisson) and let their rate grow.
# One workload has prompts of equal length; the other has log-normal lengths of the same mean.

# %%
SIGMA = 1.0
varied = workload.Lognormal(mu=np.log(PROMPT_TOKENS) - SIGMA**2 / 2, sigma=SIGMA, max_tokens=32_000)
rates = np.geomspace(0.5, 16, 6 if FAST else 16)


def shed(input_tokens, requests_per_s):
    """Shares of the requests and of their prompt tokens that are rejected, over all seeds."""
    simulation = guide.replace(
        workload=offer(requests_per_s, input_tokens), warm_up_s=DURATION_S / 2
    )
    offered = rejected = offered_tokens = rejected_tokens = 0
    for one in spillway.simulate(simulation, seeds=SEEDS):
        counts = one.requests["arrival_s"] >= simulation.warm_up_s
        lost = counts & (one.requests["outcome"] == "rejected")
        offered += counts.sum()
        rejected += lost.sum()
        offered_tokens += one.requests["input_tokens"][counts].sum()
        rejected_tokens += one.requests["input_tokens"][lost].sum()
    return rejected / offered, rejected_tokens / offered_tokens


shed_equal = np.array([shed(equal, rate) for rate in rates])
shed_varied = np.array([shed(varied, rate) for rate in rates])

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(rates, shed_varied[:, 1], **plots.STYLES[2], marker="^", label="tokens, varied prompts")
ax.plot(rates, shed_equal[:, 0], **plots.STYLES[0], marker="o", label="requests, equal prompts")
ax.plot(rates, shed_varied[:, 0], **plots.STYLES[1], marker="s", label="requests, varied prompts")
unavoidable = np.maximum(0, 1 - REFILL_TOKENS_PER_S / (PROMPT_TOKENS * rates))
ax.plot(rates, unavoidable, color="black", linestyle=":", label="tokens beyond the refill")
ax.set_xscale("log", base=2)
ax.xaxis.set_major_formatter("{x:g}")
ax.set(xlabel="offered rate (requests/s)", ylabel="share shed", ylim=(0, 1))
ax.grid(alpha=0.3)
ax.legend(title=f"{len(SEEDS)} seeds, {DURATION_S / 2:,.0f} s each", fontsize="small")

for rate, (of_equal, _), (of_varied, of_tokens) in zip(rates, shed_equal, shed_varied, strict=True):
    print(
        f"{rate:5.2f} requests/s: shed {of_equal:6.1%} of the equal prompts, "
        f"{of_varied:6.1%} of the varied ones, which are {of_tokens:6.1%} of their tokens"
    )

# %% [markdown]
# Equal prompts lose what exceeds the refill and hardly more.
# Of varied prompts fewer are shed, but the same share of their tokens.
# So the bucket saves tokens by turning away the long ones.
# Even under light load it sheds some: a prompt longer than the capacity never passes.

# %%
lengths = np.concatenate(
    [
        one.requests["input_tokens"]
        for one in spillway.simulate(guide.replace(workload=offer(rates[-1], varied)), seeds=SEEDS)
    ]
)
too_long = lengths > CAPACITY_TOKENS
print(
    f"{too_long.mean():.3%} of the prompts are longer than the bucket "
    f"and hold {lengths[too_long].sum() / lengths.sum():.1%} of the tokens"
)

# %% [markdown]
# ## Whom does the bucket turn away?

# %%
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for factor in (1, 2, 4):
    rate = factor * REFILL_TOKENS_PER_S / PROMPT_TOKENS
    simulation = guide.replace(workload=offer(rate, varied), warm_up_s=DURATION_S / 2)
    results = spillway.simulate(simulation, seeds=SEEDS)
    plots.admission_by_length(results, label=f"{factor} times the refill offered", ax=ax)
ax.axvline(PROMPT_TOKENS, color="black", linestyle=":", linewidth=1)
ax.annotate("mean", (PROMPT_TOKENS, 0.02), xytext=(4, 0), textcoords="offset points")

columns = [one.requests for one in results]
tokens = np.concatenate([one["input_tokens"] for one in columns])
passed = np.concatenate([one["outcome"] == "completed" for one in columns])
short, long = np.quantile(tokens, [0.1, 0.9])
display(
    Markdown(
        f"With {factor} times as many tokens offered as the refill brings, "
        f"{passed[tokens <= short].mean():.0%} of the shortest tenth of the prompts pass, "
        f"but only {passed[tokens >= long].mean():.1%} of the longest tenth. "
        f"The mean prompt has {tokens.mean():.0f} tokens, "
        f"the mean admitted one {tokens[passed].mean():.0f}."
    )
)

# %% [markdown]
# A prompt passes if the bucket holds as many tokens as it has.
# With Poisson arrivals the curve is thus the share of time in which it holds at least that many.
# It can only fall: the longer the prompt, the worse its chances.
# The rate of admitted requests therefore depends on the lengths, and so does the burst.

# %%
generator = np.random.default_rng(0)
mean_log = np.log(PROMPT_TOKENS) - SIGMA**2 / 2
bursts = []
for _ in range(20 if FAST else 500):
    one = spillway.trace(
        arrival_s=np.zeros(BURST),
        input_tokens=np.maximum(1, np.rint(generator.lognormal(mean_log, SIGMA, BURST))),
        output_tokens=np.ones(BURST, dtype=int),
    )
    bursts.append(spillway.simulate(guide.replace(workload=one)).ledger["admitted"])
low, high = np.quantile(bursts, [0.05, 0.95])
print(f"of {BURST} varied prompts at once, {np.mean(bursts):.1f} pass on average")
print(f"between {low:.0f} and {high:.0f} in nine of ten bursts; {admitted} when all are equal")

# %% [markdown]
# ## What admits 99 %?
#
# The workload to serve: varied prompts that arrive in bursts (gamma-distributed gaps).
# The offered tokens per second are known; refills are given as multiples of them.

# %%
TARGET = 0.99
RATE_PER_S = 4
REFILL_FACTORS = (0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
bursty = offer(RATE_PER_S, varied, arrivals=workload.Gamma(cv=2))
offered_tokens_per_s = RATE_PER_S * PROMPT_TOKENS
capacities = np.geomspace(1_000, 256_000, 5 if FAST else 17)


def shares_admitted(capacity_tokens, refill_tokens_per_s):
    """Share of the requests after the warm-up that are admitted, for each seed."""
    simulation = guide.replace(workload=bursty, warm_up_s=DURATION_S / 2).with_(
        {
            "gateway.admission[0].capacity_tokens": capacity_tokens,
            "gateway.admission[0].refill_tokens_per_s": refill_tokens_per_s,
        }
    )
    summaries = [one.summary() for one in spillway.simulate(simulation, seeds=SEEDS)]
    return [1 - one["rejected"] / one["offered"] for one in summaries]


share = np.array(
    [
        [shares_admitted(capacity, factor * offered_tokens_per_s) for capacity in capacities]
        for factor in REFILL_FACTORS
    ]
)  # refill, capacity, seed


def needed(means):
    """The capacity at which the share reaches the target, interpolated; None: not in the range."""
    above = np.flatnonzero(means >= TARGET)
    if len(above) == 0 or above[0] == 0:
        return None
    i = above[0]
    return np.exp(np.interp(TARGET, means[i - 1 : i + 1], np.log(capacities[i - 1 : i + 1])))


default = np.mean(shares_admitted(CAPACITY_TOKENS, REFILL_TOKENS_PER_S))
print(f"offered: {RATE_PER_S} requests/s, {offered_tokens_per_s:,} tokens/s")
print(f"the bucket of the question admits {default:.1%} of these requests")


# %%
def words(size):
    """A capacity to two or three digits."""
    return "none" if size is None else f"{round(size, -2):,.0f}"


sizes = {}
print(f"refill (tokens/s)  refill / offered  capacity for {TARGET:.0%} (tokens)  in the worst seed")
for factor, row in zip(REFILL_FACTORS, share, strict=True):
    sizes[factor] = needed(row.mean(axis=1))
    print(
        f"{factor * offered_tokens_per_s:17,.0f}  {factor:16.2f}  "
        f"{words(sizes[factor]):>25}  {words(needed(row.min(axis=1))):>17}"
    )

# %% [markdown]
# To read the figure, choose the line of the refill that the servers can sustain.
# Below its dot on the dotted line stands the capacity.
# Lines are means over the seeds; bands reach from the lowest seed to the highest.

# %%
fig, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
for style, factor, row in zip(plots.STYLES, REFILL_FACTORS, share, strict=False):
    size = sizes[factor]
    name = f"{factor * offered_tokens_per_s:,.0f} ({factor:g})"
    ax.plot(
        capacities,
        row.mean(axis=1),
        **style,
        label=f"{name}: {words(size)}",
    )
    if size is not None:
        ax.plot(size, TARGET, "o", color=style["color"])
    ax.fill_between(capacities, row.min(axis=1), row.max(axis=1), color=style["color"], alpha=0.15)
ax.axhline(TARGET, color="black", linestyle=":", linewidth=1)
ax.annotate(f"{TARGET:.0%}", (capacities[0], TARGET), xytext=(0, 4), textcoords="offset points")
ax.axvline(CAPACITY_TOKENS, color="black", linestyle=":", linewidth=1)
ax.annotate(
    f"{CAPACITY_TOKENS:,}", (CAPACITY_TOKENS, 0.85), xytext=(4, 4), textcoords="offset points"
)
ax.set_xscale("log")
ax.xaxis.set_major_formatter("{x:,.0f}")
ax.yaxis.set_major_formatter("{x:.0%}")
ax.set(
    xlabel="capacity of the bucket (tokens)",
    ylabel="share of the requests admitted",
    ylim=(0.85, 1.003),
    title=f"What a bucket must hold to admit {RATE_PER_S} bursty requests/s "
    f"({offered_tokens_per_s:,} tokens/s)",
)
ax.grid(alpha=0.3)
legend = ax.legend(
    title=f"refill in tokens/s (÷ offered):\ncapacity for {TARGET:.0%}",
    loc="lower right",
    fontsize="small",
)


# %%
def holding(factor):
    """What a bucket with this refill must hold, also in seconds of the offered load."""
    size = sizes[factor]
    if size is None:
        return "more than was tried"
    return f"{words(size)} tokens ({size / offered_tokens_per_s:.1f} s of load)"


lowest, moderate, highest = REFILL_FACTORS[0], REFILL_FACTORS[2], REFILL_FACTORS[-1]
Markdown(
    f"For equal prompts the arithmetic is exact: a burst of {admitted} requests, then "
    f"{sustained_per_s:.2f} requests/s. "
    f"For prompts that differ it holds in tokens, not in requests, and the long prompts pay. "
    f"To admit {TARGET:.0%} of this workload, capacity and refill trade against each other: "
    f"if the refill is {moderate:g} times the offered tokens, the bucket must hold "
    f"{holding(moderate)}; if it is {highest:g} times, {holding(highest)}. "
    f"At {lowest:g} times no capacity suffices: the share admitted levels off at "
    f"{share[0, -1].mean():.1%}, and a larger bucket only postpones the rejections."
)
