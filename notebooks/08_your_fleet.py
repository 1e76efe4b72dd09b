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
# # How many servers does your fleet need?
#
# From measured runs of one server to a decision about a fleet: how many servers hold a target for
# the time to first token, and how sure is that?
#
# It takes about 10 s of processor time.
#
# The measured runs here come from a simulated server, so that the notebook runs anywhere.
# Put your own files in their place:
# [the guide](../docs/guides/read_measurements.md) lists the formats.

# %%
import csv
import os
import warnings
from pathlib import Path

from IPython.display import Markdown

import spillway
from spillway import Simulation, instance, workload
from spillway.calibration import quantile_plots
from spillway.report import plots

FAST = os.environ.get("SPILLWAY_FAST") == "1"  # smaller runs, for the tests
FOLDER = Path("measured_runs")
FOLDER.mkdir(exist_ok=True)

# %% [markdown]
# ## Measure
#
# Three runs with different lengths identify the coefficients of a server; one run does not.
# Each row is a request as a benchmark client records it.

# %%
REAL = instance.InstanceGroup(
    max_num_seqs=64,
    num_kv_blocks=20_000,
    kv_cache={"reserve_full_prompt": True},
    async_scheduling=True,
    latency=instance.Roofline(
        alpha0_us=4000,
        constant_us=2000,
        weights_us=12_000,
        token_us=60,
        decode_us=40,
        decode_context_us=0.08,
        prefill_context_us=0.003,
    ),
)
LOADS = {"chat": (4, (100, 900)), "short": (9, (20, 200)), "documents": (3, (800, 3000))}


def measure(name, requests_per_s, prompts, seed):
    client = workload.Client(
        input_tokens=workload.Uniform(min_tokens=prompts[0], max_tokens=prompts[1]),
        output_tokens=workload.Uniform(min_tokens=20, max_tokens=150),
    )
    traffic = workload.Synthetic(requests_per_s=requests_per_s, num_requests=300, clients=[client])
    requests = spillway.simulate(Simulation(workload=traffic, instances=REAL), seed).requests
    columns = {"send_s": "arrival_s", "input_tokens": "input_tokens",
               "output_tokens": "output_tokens", "ttft_s": "ttft_s", "e2e_s": "e2e_s"}  # fmt: skip
    with (FOLDER / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(requests[one] for one in columns.values()), strict=True))


for seed, (name, (rate, prompts)) in enumerate(LOADS.items()):
    measure(name, rate, prompts, seed)

# %% [markdown]
# What the files do not say about the server, its log does: version, limits, "GPU KV cache size".

# %%
facts = {
    "model": "example-8b",
    "engine": "vllm",
    "engine_version": "0.20.0",
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "num_kv_blocks": 20_000,
}
profile = spillway.calibrate(
    sorted(FOLDER.glob("*.csv")), server=facts, norms=(4.0,) if FAST else (4.0, 2.0, 1.0)
)
profile.save(FOLDER / "server.yaml")
print(profile.text())

# %% [markdown]
# The coefficients themselves are known loosely, some of them only together.
# What counts is what the server does with requests: simulated against measured, by quantile.

# %%
recordings = [
    one for path in sorted(FOLDER.glob("*.csv")) for one in spillway.read_recordings(path)
]
figure = quantile_plots.quantiles(recordings, profile)

# %% [markdown]
# ## Your traffic
#
# Here two clients; a trace works as well (`spillway.read_trace`).
# 20 requests/s are more than any measured run had, on more than one server.

# %%
traffic = workload.Synthetic(
    requests_per_s=20,
    num_requests=600 if FAST else 4_000,
    clients=[
        workload.Client(
            name="chat",
            rate_fraction=0.85,
            input_tokens=workload.Lognormal(mu=6.0, sigma=0.7, max_tokens=3_000),
            output_tokens=workload.Lognormal(mu=4.3, sigma=0.5, max_tokens=400),
        ),
        workload.Client(
            name="documents",
            rate_fraction=0.15,
            arrivals=workload.Gamma(cv=2),
            input_tokens=workload.Uniform(min_tokens=800, max_tokens=3_000),
            output_tokens=workload.Fixed(tokens=60),
        ),
    ],
)
(FOLDER / "fleet.yaml").write_text(
    "schema: 1\n"
    "router: least_loaded\n"
    "instances: {server: server.yaml}\n"
    "metrics: {timeline_step_s: 0.5}\n"
)
fleet = spillway.load(FOLDER / "fleet.yaml").replace(workload=traffic)

# %% [markdown]
# ## How many servers?
#
# The target: 99% of the requests get their first token within 350 ms.
# Each size of the fleet gives an interval, over 20 servers drawn from what the runs leave open.

# %%
TARGET_MS = 350
sizes = range(2, 7)
answers, fitted = {}, {}
for count in sizes:
    simulation = fleet.with_({"instances[0].count": count})
    result = fitted[count] = spillway.simulate(simulation)
    nominal = result.summary()["p99_ttft_ms"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it leaves what was measured, which is printed here
        low, high = spillway.simulate(simulation, uncertainty=5 if FAST else 20)["p99_ttft_ms"]
    answers[count] = (nominal, low, high)
    (seen,) = result.fitted_states
    remark = ", beyond what was measured" if seen["outside"] > 0.05 * seen["states"] else ""
    print(f"{count} servers: p99 TTFT {nominal:,.0f} ms ({low:,.0f} to {high:,.0f}){remark}")

# %%
ax = plots.sweep(fitted, "p99_ttft_ms", setting="servers", label="fitted server", log="y")
lows, highs = ([answer[i] for answer in answers.values()] for i in (1, 2))
ax.vlines(list(sizes), lows, highs, linewidth=5, alpha=0.4, label="90% of the draws")
ax.axhline(TARGET_MS, color="gray", linestyle="--", label="target")
ax.set_xticks(list(sizes))
legend = ax.legend(fontsize="small")

# %%
enough = [count for count, (_, _, high) in answers.items() if high <= TARGET_MS]
perhaps = [count for count, (_, low, _) in answers.items() if low <= TARGET_MS]
verdict = (
    f"{min(enough)} servers hold the target in the whole interval." if enough else
    "None of these fleets holds the target in the whole interval."
)  # fmt: skip
if perhaps and (not enough or min(perhaps) < min(enough)):
    verdict += f" {min(perhaps)} may: measure more runs, near this load, to know."
Markdown(verdict)

# %% [markdown]
# ## Is the answer within what was measured?
#
# A fit is worth something in batch states like those that it has seen.
# The profile remembers them.
# A run that leaves them for more than 5% of its time says so in its notes.

# %%
chosen = min(enough or perhaps or sizes)
result = spillway.simulate(fleet.with_({"instances[0].count": chosen}))
(seen,) = result.fitted_states
share = 1 - seen["outside"] / seen["states"]
Markdown(f"With {chosen} servers, {share:.0%} of the time is within the measured states.")

# %% [markdown]
# ## Take it to a shell
#
# The same configuration as a file, for `spillway run`, `spillway sweep` and `spillway optimize`.

# %%
spillway.dump(fleet.with_({"instances[0].count": chosen}), FOLDER / "decision.yaml")
print((FOLDER / "decision.yaml").read_text()[:600])

# %%
p99_ms, low_ms, high_ms = answers[chosen]
Markdown(
    f"**So set** `instances[0].count` to {chosen}: the p99 of TTFT is {p99_ms:,.0f} ms with the "
    f"fitted server, and between {low_ms:,.0f} and {high_ms:,.0f} ms with nine of ten servers that "
    f"the runs leave possible, for a target of {TARGET_MS} ms."
)
