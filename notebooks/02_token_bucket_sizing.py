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
# - Which capacity and which refill rate admit 99% of a given workload?
#
# It takes about 10 s of processor time.

# %%
import os

import numpy as np
from IPython.display import Markdown

import spillway
from spillway import gateway, profiles, workload
from spillway.report import plots

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
DURATION_S = 600 if FAST else 7200
SEEDS = range(2) if FAST else range(8)

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
# The bucket starts full, and 40 requests arrive at the same instant.
# The tokens that they leave over are not lost: afterwards a prompt arrives every 10 ms, and the
# first is admitted as soon as the refill has added what is missing.

# %%
BURST = 40
arrival_s = np.concatenate([np.zeros(BURST), np.arange(1, 101) / 100])
burst = spillway.trace(
    arrival_s=arrival_s,
    input_tokens=np.full(len(arrival_s), PROMPT_TOKENS),
    output_tokens=np.ones(len(arrival_s), dtype=int),
)
requests = spillway.simulate(guide.replace(workload=burst)).requests
admitted = int(requests["admitted"][:BURST].sum())
left = CAPACITY_TOKENS - admitted * PROMPT_TOKENS
passed_s = requests["arrival_s"][BURST:][requests["admitted"][BURST:]]
print(f"{admitted} of {BURST} admitted; {left} tokens are left")
print(f"first admitted after the burst: {passed_s[0]:.2f} s")
print(f"expected: {(PROMPT_TOKENS - left) / REFILL_TOKENS_PER_S:.2f} s")
assert admitted == CAPACITY_TOKENS // PROMPT_TOKENS

# %% [markdown]
# ## Sustained overload
#
# The same prompts arrive at equal intervals, far too fast.
# The steep start is the burst, and the slope is the refill rate.


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


equal = workload.Fixed(tokens=PROMPT_TOKENS)
minute = guide.replace(workload=offer(10, equal, arrivals="constant", duration_s=60))
ax = spillway.simulate(minute).plot.admitted_tokens()

# %% [markdown]
# In the second half of a long run, the burst no longer counts.

# %%
overloaded = guide.replace(workload=offer(10, equal, arrivals="constant"), warm_up_s=DURATION_S / 2)
summary = spillway.simulate(overloaded).summary()
sustained_per_s = (summary["offered"] - summary["rejected"]) / (DURATION_S / 2)
print(f"admitted  {sustained_per_s:.3f} requests/s")
print(f"expected  {REFILL_TOKENS_PER_S / PROMPT_TOKENS:.3f} requests/s")

# %% [markdown]
# ## How much is shed?
#
# Now the arrivals are random (Poisson), at increasing rates.
# One workload has prompts of equal length; the other has log-normal lengths with the same mean.

# %%
SIGMA = 1.0
varied = workload.Lognormal(mu=np.log(PROMPT_TOKENS) - SIGMA**2 / 2, sigma=SIGMA, max_tokens=32_000)
RATES = (1, 2, 4, 16) if FAST else (0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 8, 16)


def share_of_requests_shed(result):
    counted = result.requests["arrival_s"] >= result.simulation.warm_up_s
    return 1 - result.requests["admitted"][counted].mean()


def share_of_tokens_shed(result):
    counted = result.requests["arrival_s"] >= result.simulation.warm_up_s
    tokens = result.requests["input_tokens"][counted]
    return tokens[~result.requests["admitted"][counted]].sum() / tokens.sum()


def at_rates(input_tokens):
    simulations = [
        guide.replace(workload=offer(rate, input_tokens), warm_up_s=DURATION_S / 2)
        for rate in RATES
    ]
    return dict(zip(RATES, spillway.run_many(simulations, SEEDS, keep_requests=True), strict=True))


curves = {"equal prompts": at_rates(equal), "varied prompts": at_rates(varied)}
figure = plots.sweeps(
    curves,
    [share_of_requests_shed, share_of_tokens_shed],
    setting="offered (requests/s)",
    log="x",
)

# %%
print("offered       tokens beyond  equal prompts        varied prompts")
print("(requests/s)  the refill     requests  tokens     requests  tokens")
for rate in RATES:
    beyond = max(0, 1 - REFILL_TOKENS_PER_S / (PROMPT_TOKENS * rate))
    shares = [
        curves[name][rate].interval(figure).mean
        for name in curves
        for figure in (share_of_requests_shed, share_of_tokens_shed)
    ]
    print(
        f"{rate:12g}  {beyond:13.1%}  {shares[0]:8.1%}  {shares[1]:6.1%}     "
        f"{shares[2]:8.1%}  {shares[3]:6.1%}"
    )

# %% [markdown]
# Of equal prompts, the bucket sheds hardly more than the load beyond the refill rate.
# Of varied prompts, it sheds the same share of tokens under overload, but fewer requests: it saves
# tokens by rejecting long prompts.
# It rejects some even under light load, because a prompt longer than the capacity is never
# admitted.
#
# ## Which requests are rejected?

# %%
ax = None
for factor in (1, 2, 4):
    rate = factor * REFILL_TOKENS_PER_S / PROMPT_TOKENS
    simulation = guide.replace(workload=offer(rate, varied), warm_up_s=DURATION_S / 2)
    results = spillway.simulate(simulation, seeds=SEEDS)
    ax = plots.admission_by_length(results, label=f"{factor} times the refill offered", ax=ax)

tokens = np.concatenate([one.requests["input_tokens"] for one in results])
passed = np.concatenate([one.requests["admitted"] for one in results])
shortest, longest = (tokens <= np.quantile(tokens, 0.1)), (tokens >= np.quantile(tokens, 0.9))
Markdown(
    f"With {factor} times as many tokens offered as the refill adds, "
    f"{passed[shortest].mean():.0%} of the shortest tenth of the prompts are admitted, "
    f"but only {passed[longest].mean():.1%} of the longest tenth. "
    f"The bucket admits a prompt if it holds at least as many tokens, so with Poisson arrivals the "
    f"curve is the share of time in which it holds that many."
)

# %% [markdown]
# The rate of admitted requests therefore depends on the lengths, and so does the burst.

# %%
generator = np.random.default_rng(0)
bursts = []
for _ in range(20 if FAST else 500):
    lengths = generator.lognormal(np.log(PROMPT_TOKENS) - SIGMA**2 / 2, SIGMA, BURST)
    one = spillway.trace(
        arrival_s=np.zeros(BURST),
        input_tokens=np.maximum(1, np.rint(lengths)),
        output_tokens=np.ones(BURST, dtype=int),
    )
    bursts.append(spillway.simulate(guide.replace(workload=one)).ledger["admitted"])
low, high = np.quantile(bursts, [0.05, 0.95])
print(f"of {BURST} varied prompts at once, {np.mean(bursts):.1f} are admitted on average,")
print(f"{low:.0f} to {high:.0f} in nine of ten bursts; {admitted} if all are equal")

# %% [markdown]
# ## Which bucket admits 99%?
#
# In this workload, varied prompts arrive in bursts (gamma-distributed gaps).
# Refill rates are multiples of the offered tokens per second.

# %%
TARGET = 0.99
RATE_PER_S = 4
REFILL_FACTORS = (0.9, 1.1, 1.5, 2.0)
CAPACITIES = (2_000, 16_000, 128_000) if FAST else [1_000 * 2**i for i in range(9)]
bursty = offer(RATE_PER_S, varied, arrivals=workload.Gamma(cv=2))
offered_tokens_per_s = RATE_PER_S * PROMPT_TOKENS


def share_of_requests_admitted(result):
    summary = result.summary()
    return 1 - summary["rejected"] / summary["offered"]


by_refill = {}
for factor in REFILL_FACTORS:
    simulations = [
        guide.replace(workload=bursty, warm_up_s=DURATION_S / 2).with_(
            {
                "gateway.admission[0].capacity_tokens": capacity,
                "gateway.admission[0].refill_tokens_per_s": factor * offered_tokens_per_s,
            }
        )
        for capacity in CAPACITIES
    ]
    runs = spillway.run_many(simulations, seeds=SEEDS)
    by_refill[f"refill {factor:g} times the load"] = dict(zip(CAPACITIES, runs, strict=True))

(ax,) = plots.sweeps(
    by_refill, [share_of_requests_admitted], setting="capacity (tokens)", log="x"
).axes
line = ax.axhline(TARGET, color="gray", linestyle=":", linewidth=1)
limits = ax.set_ylim(0.8, 1.005)


# %%
def enough(by_capacity):
    """The smallest capacity tried that reaches the target in the mean; None: no capacity does."""
    shares = {
        size: runs.interval(share_of_requests_admitted).mean for size, runs in by_capacity.items()
    }
    return min((size for size, share in shares.items() if share >= TARGET), default=None)


def words(size):
    return "none of these" if size is None else f"{size:,} tokens"


sizes = {
    factor: enough(runs) for factor, runs in zip(REFILL_FACTORS, by_refill.values(), strict=True)
}
for factor, size in sizes.items():
    load = "" if size is None else f", {size / offered_tokens_per_s:.0f} s of load"
    print(f"refill {factor * offered_tokens_per_s:5,.0f} tokens/s: {words(size)}{load}")
most = by_refill[f"refill {REFILL_FACTORS[0]:g} times the load"][CAPACITIES[-1]]
levels_off = most.interval(share_of_requests_admitted).mean

# %%
Markdown(
    f"For equal prompts the arithmetic is exact: a burst of {admitted} requests, then "
    f"{sustained_per_s:.2f} requests/s. For varied prompts it holds for tokens, not for requests, "
    f"and long prompts are rejected most. With a refill of {REFILL_FACTORS[0]:g} times the load, "
    f"the share admitted levels off at {levels_off:.1%}.\n\n"
    f"**So set** `refill_tokens_per_s` to what the servers sustain, in prompt tokens, and then "
    f"`capacity_tokens` to the smallest value that admits your target. For {TARGET:.0%} of this "
    f"workload that is {words(sizes[1.1])} with a refill of 1.1 times the load, and "
    f"{words(sizes[2.0])} with a refill of twice the load."
)
