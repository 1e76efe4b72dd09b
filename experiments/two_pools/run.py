"""Two pathologies of prefill and decode pools: prompts computed in vain, and a gate for both.

Writes README.md, goodput.svg and shared_gate.svg.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from experiments import common
from experiments.common import exceeds, markdown, mean_interval, paired, shown, values
from experiments.two_pools import shared_gate
from spillway import Simulation, instance, router, run_many, workload
from spillway.report import style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.result import Result, Results

_RESULT = Path(__file__).with_name("README.md")
_LOADS_PER_S = (5, 10, 15, 20, 25, 30, 40)
_TARGET_S = 0.5
_MOST_IN_FLIGHT = 24
_MARGIN = 0.1
"""A difference in goodput up to this is of no consequence."""
_FIRST_SEED = 100

Order = Literal["prefill_first", "decode_first"]
_ORDERS: tuple[Order, ...] = ("prefill_first", "decode_first")
_NAMES = {"prefill_first": "prefill first (Dynamo)", "decode_first": "decode first (llm-d)"}


def simulation(order: Order, requests_per_s: float, num_requests: int) -> Simulation:
    """Two servers in each pool, of which each takes a limited number of requests."""
    server = instance.Server(model="llama-3.1-8b", gpu="h100").group.replace(
        count=2, engine_rules=instance.EngineRules()
    )
    client = workload.Client(
        input_tokens=workload.Fixed(tokens=3000), output_tokens=workload.Fixed(tokens=400)
    )
    limit = router.Thresholds(max_in_flight=_MOST_IN_FLIGHT, if_none="reject")
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=requests_per_s, num_requests=num_requests, clients=[client]
        ),
        slo_classes=[workload.SloClass(name="standard", target_ttft_s=_TARGET_S)],
        instances=[server.replace(role="prefill"), server.replace(role="decode")],
        router=router.Weighted(filters=[limit], scorers=[router.LoadBalance()]),
        disaggregation=router.Disaggregation(order=order),
    )


def wasted(result: Result) -> float:
    """The share of the computed prompts whose requests were refused afterwards."""
    legs = result.ledger["legs"]
    share: float = 1 - legs["transfers_begun"] / max(1, legs["prefill_ended"])
    return share


def row(load_per_s: float, found: dict[str, Results]) -> list[str]:
    """The figures of a load, and whether the difference exceeds the margin."""
    gain = paired(
        values(found["decode_first"], "goodput"), values(found["prefill_first"], "goodput")
    )
    return [
        f"{load_per_s:g}",
        *(shown(mean_interval(found[order], "goodput")) for order in _ORDERS),
        shown(gain),
        exceeds(gain, _MARGIN),
        shown(mean_interval(found["prefill_first"], wasted)),
    ]


def draw(loads_per_s: Sequence[float], runs: Sequence[dict[str, Results]], path: Path) -> None:
    """Goodput of both orders, and the wasted share, by load."""
    figure = style.pyplot().figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for order in _ORDERS:
        means = [sum(values(found[order], "goodput")) / len(found[order]) for found in runs]
        axes.plot(loads_per_s, means, marker="o", label=f"goodput, {_NAMES[order]}")
    shares = [
        sum(values(found["prefill_first"], wasted)) / len(found["prefill_first"]) for found in runs
    ]
    axes.plot(loads_per_s, shares, "--", color="#888888", label="wasted prefills, prefill first")
    axes.set_xlabel("requests per second")
    axes.set_ylabel("share")
    axes.set_ylim(0, 1.02)
    style.legend_above(axes)
    style.save(figure, path)


_TEXT = """# Two pathologies of prefill and decode pools

Written by `make experiments NAME=two_pools`.

## Prefills for a decode pool that refuses

**Question.** Does it matter whether a router asks the decode pool before or after a prompt is
computed, once the decode pool is full?

**Answer.** {answer}

| | |
|---|---|
| servers | two for prefill, two for decoding: Llama 3.1 8B on an H100 each |
| requests | {num_requests:,} of 3,000 prompt and 400 output tokens, as a Poisson process |
| limit | a server takes at most {most} requests; if all of a pool are full, one is refused |
| goodput | share of the offered requests with a first token within {target:g} s |
| seeds | {num_seeds} from {first_seed} on, paired; 95 % intervals |
| margin | {margin:g} in goodput, set after a trial with seeds 1 to 3 and before these runs |

{table}

![Goodput by load](goodput.svg)

With the prefill server first, as in Dynamo, a request takes a prefill server while the decode pool
is full, and is refused when its prompt is ready. The prompts that are computed in vain keep those
waiting whose requests would be served. With the decode server first, as in llm-d, such a request is
refused at its arrival.

{other}
## Threats

- The limit of the first part counts requests in flight at the gateway. Dynamo's own thresholds are
  of KV blocks and prompt tokens, and reach the router late.
- All its requests are of one length. With shorter prompts the prefill pool has room for what is
  wasted, and the difference disappears, as at low load here.
- Refused requests are not tried again. Retries would add to the load on prefill.
- In the second part the shares of chats and documents, and the limit of 50 requests in flight, are
  ours. A decode pool that is itself full shuts every gate.
- Step times come from datasheets.
"""


def report(
    loads_per_s: Sequence[float],
    documents_per_s: Sequence[float],
    *,
    num_requests: int,
    num_seeds: int,
    threads: int | None,
    folder: Path,
) -> str:
    """Runs the experiment, draws its figures into a folder and returns its page."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + num_seeds)
    runs = []
    for load_per_s in loads_per_s:
        common.say(f"{load_per_s:g} requests/s")
        both = [simulation(order, load_per_s, num_requests) for order in _ORDERS]
        results = run_many(both, seeds, threads=threads)
        runs.append(dict(zip(_ORDERS, results, strict=True)))
    draw(loads_per_s, runs, folder / "goodput.svg")
    header = (
        "requests/s",
        *(f"goodput, {_NAMES[order]}" for order in _ORDERS),
        "gain of decode first",
        f"above {_MARGIN:g}",
        "wasted prefills",
    )
    rows = [row(load, found) for load, found in zip(loads_per_s, runs, strict=True)]
    confirmed = [line[0] for line in rows if line[4] == "confirmed"]
    answer = "Not at these loads."
    if confirmed:
        line = next(line for line in rows if line[0] == confirmed[0])
        answer = (
            f"It does from {line[0]} requests/s on, where the goodput is {line[2]} if the decode "
            f"pool is asked first and {line[1]} if it is asked last; below, hardly."
        )
    return _TEXT.format(
        answer=answer,
        num_requests=num_requests,
        num_seeds=num_seeds,
        first_seed=_FIRST_SEED,
        most=_MOST_IN_FLIGHT,
        target=_TARGET_S,
        margin=_MARGIN,
        table=markdown(header, rows),
        other=shared_gate.section(
            documents_per_s,
            seeds,
            num_requests=num_requests,
            threads=threads,
            picture=folder / "shared_gate.svg",
        ),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common.add_options(parser, _RESULT, seeds=10)
    parser.set_defaults(requests=1500)
    options = parser.parse_args()
    text = report(
        _LOADS_PER_S,
        shared_gate.DOCUMENTS_PER_S,
        num_requests=options.requests,
        num_seeds=options.seeds,
        threads=options.threads,
        folder=options.output.parent,
    )
    common.publish(text, options.output)


if __name__ == "__main__":
    main()
