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
# A token bucket holds 10,000 tokens and refills at 1,000 tokens per second.
# Every prompt has 512 tokens.
# The usual arithmetic gives a sustained rate of 1000 / 512 ≈ 1.95 requests per second
# and a burst of 10000 / 512 ≈ 19 requests.
#
# - Is that right?
# - Which requests does the bucket reject when prompts differ in length?
# - Which capacity and which refill rate admit 99 % of a given workload?

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
from spillway import gateway, profiles, workload
from spillway.report import plots

CAPACITY_TOKENS = 10_000
REFILL_TOKENS_PER_S = 1_000
PROMPT_TOKENS = 512

bucket = gateway.TokenBucket(
    capacity_tokens=CAPACITY_TOKENS, refill_tokens_per_s=REFILL_TOKENS_PER_S
)
guide = spillway.Simulation(
    gateway=gateway.Gateway(admission=bucket), instances=profiles.BLIS_SERVER.replace(count=4)
)

# %% [markdown]
# Every request generates a single output token, so the servers never run short of capacity.
# Only the bucket limits admission.
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
print(f"{left} tokens are left; the next prompt needs {PROMPT_TOKENS - left} more")
assert admitted == CAPACITY_TOKENS // PROMPT_TOKENS

# %% [markdown]
# The tokens that are left are not lost.
# Now send one more prompt every 10 ms.
# The first one is admitted as soon as the refill has added the missing tokens.

# %%
retry_s = np.arange(1, 101) / 100
burst_and_retries = spillway.trace(
    arrival_s=np.concatenate([np.zeros(BURST), retry_s]),
    input_tokens=np.full(BURST + len(retry_s), PROMPT_TOKENS),
    output_tokens=np.ones(BURST + len(retry_s), dtype=int),
)
requests = spillway.simulate(guide.replace(workload=burst_and_retries)).requests
passed_s = requests["arrival_s"][BURST:][requests["outcome"][BURST:] == "completed"]
print(f"first admitted after the burst: {passed_s[0]:.2f} s")
print(f"expected: {(PROMPT_TOKENS - left) / REFILL_TOKENS_PER_S:.2f} s")

# %% [markdown]
# ## Sustained overload
#
# Now the same prompts arrive at equal intervals and far too fast, for a long time.
# The first half of the run is warm-up, so the initially full bucket does not count.


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
# The first minute shows both numbers: the steep start is the burst, and the slope is the refill
# rate.
# The admitted tokens never exceed the capacity plus the refill rate times the elapsed time.

# %%
first_minute = guide.replace(
    workload=offer(OVERLOAD_PER_S, equal, arrivals="constant", duration_s=60)
)
ax = spillway.simulate(first_minute).plot.admitted_tokens()

# %% [markdown]
# ## How much is shed?
#
# Now the arrivals are random (Poisson), at increasing rates.
# One workload has prompts of equal length; the other has log-normal lengths with the same mean.

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
        f"{of_varied:6.1%} of the varied ones with {of_tokens:6.1%} of their tokens"
    )

# %% [markdown]
# With equal prompts, the bucket sheds hardly more than the load beyond the refill rate.
# With varied prompts, it sheds fewer requests but the same share of tokens:
# it saves tokens by rejecting long prompts.
# It rejects some even under light load, because a prompt longer than the capacity is never
# admitted.

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
# ## Which requests are rejected?

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
        f"With {factor} times as many tokens offered as the refill adds, "
        f"{passed[tokens <= short].mean():.0%} of the shortest tenth of the prompts are admitted, "
        f"but only {passed[tokens >= long].mean():.1%} of the longest tenth. "
        f"The mean prompt has {tokens.mean():.0f} tokens, "
        f"the mean admitted one {tokens[passed].mean():.0f}."
    )
)

# %% [markdown]
# The bucket admits a prompt if it holds at least as many tokens as the prompt.
# With Poisson arrivals, the curve is thus the share of time in which it holds that many.
# The curve can only fall: the longer the prompt, the lower its chance of admission.
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
print(f"of {BURST} varied prompts at once, {np.mean(bursts):.1f} are admitted on average,")
print(f"{low:.0f} to {high:.0f} in nine of ten bursts; {admitted} if all are equal")

# %% [markdown]
# ## Which bucket admits 99 %?
#
# In this workload, varied prompts arrive in bursts (gamma-distributed gaps).
# Refill rates are multiples of the offered tokens per second.

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
    """The interpolated capacity at which the share reaches the target; None outside the range."""
    above = np.flatnonzero(means >= TARGET)
    if len(above) == 0 or above[0] == 0:
        return None
    i = above[0]
    return np.exp(np.interp(TARGET, means[i - 1 : i + 1], np.log(capacities[i - 1 : i + 1])))


default = np.mean(shares_admitted(CAPACITY_TOKENS, REFILL_TOKENS_PER_S))
print(f"offered: {RATE_PER_S} requests/s, {offered_tokens_per_s:,} tokens/s")
print(f"the bucket of the introduction admits {default:.1%} of these requests")


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
# To size a bucket, choose the line of the refill rate that the servers can sustain.
# The dot where it crosses the dotted line marks the capacity.
# Lines are means over the seeds; bands span the lowest to the highest seed.

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
    title=f"Capacity needed to admit {RATE_PER_S} bursty requests/s "
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
    """The capacity that a bucket with this refill needs, also in seconds of the offered load."""
    size = sizes[factor]
    if size is None:
        return "more than the largest capacity tried"
    return f"{words(size)} tokens ({size / offered_tokens_per_s:.1f} s of load)"


lowest, moderate, highest = REFILL_FACTORS[0], REFILL_FACTORS[2], REFILL_FACTORS[-1]
Markdown(
    f"**Takeaway.** "
    f"For equal prompts the arithmetic is exact: a burst of {admitted} requests, then "
    f"{sustained_per_s:.2f} requests/s. "
    f"For varied prompts it holds for tokens, not for requests, and long prompts are rejected "
    f"most. "
    f"To admit {TARGET:.0%} of this workload, capacity and refill rate trade off against each "
    f"other: with a refill of {moderate:g} times the offered tokens, the bucket must hold "
    f"{holding(moderate)}; with {highest:g} times, {holding(highest)}. "
    f"With {lowest:g} times, no capacity suffices: the share admitted levels off at "
    f"{share[0, -1].mean():.1%}, and a larger bucket only postpones the rejections."
)
