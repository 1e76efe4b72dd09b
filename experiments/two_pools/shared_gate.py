"""A gate that the saturation of one pool shuts for requests that would not use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from experiments import common
from experiments.common import exceeds, markdown, mean_interval, paired, shown, values
from spillway import Simulation, gateway, instance, router, run_many, signals, workload
from spillway.report import style

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, Literal

    from spillway.result import Result, Results

DOCUMENTS_PER_S = (5, 10, 12, 14, 17, 20, 30)
_CHAT_PER_S = 20
_TARGETS_S = {"chat": 0.5, "documents": 5.0}
_MARGIN = 0.1
"""A difference in goodput up to this is of no consequence."""
_LOW_CEILING = 0.5


class _Gate(NamedTuple):
    name: str
    detector: Literal["utilization", "concurrency"] = "utilization"
    across: Literal["max", "decode"] = "max"
    ceiling: float = 1  # of the band of documents


_GATES = (
    _Gate("maximum (llm-d)"),
    _Gate(f"documents' ceiling {_LOW_CEILING:g}", ceiling=_LOW_CEILING),
    _Gate("requests in flight", detector="concurrency"),
    _Gate("decode pool", across="decode"),
)
_PLAIN, _DECODE = _GATES[0], _GATES[-1]


def simulation(gate: _Gate, documents_per_s: float, num_requests: int) -> Simulation:
    """Chats that the decode pool serves alone, and documents that need the prefill pool first."""
    server = instance.Server(model="llama-3.1-8b", gpu="h100").group.replace(
        count=2, engine_rules=instance.EngineRules()
    )
    rates = {"chat": _CHAT_PER_S, "documents": documents_per_s}
    tokens = {"chat": (300, 200), "documents": (6000, 100)}
    clients = [
        workload.Client(
            name=name,
            slo_class=name,
            rate_fraction=rate,
            input_tokens=workload.Fixed(tokens=tokens[name][0]),
            output_tokens=workload.Fixed(tokens=tokens[name][1]),
        )
        for name, rate in rates.items()
    ]
    classes = [
        workload.SloClass(name=name, priority=priority, target_ttft_s=_TARGETS_S[name])
        for priority, name in ((1, "chat"), (0, "documents"))
    ]
    band: dict[str, Any] = {"max_requests": 5000, "queue": gateway.Queue(timeout_s=60)}
    limit = gateway.Saturation(detector=gate.detector, across=gate.across, max_concurrency=50)
    return Simulation(
        workload=workload.Synthetic(
            requests_per_s=sum(rates.values()), num_requests=num_requests, clients=clients
        ),
        slo_classes=classes,
        instances=[server.replace(role="prefill"), server.replace(role="decode")],
        router=router.Weighted(scorers=[router.PrefixAffinity(weight=2), router.QueueDepth()]),
        signals=signals.Scraped(period_s=0.05, stale_after_s=0.2, when_stale="fail_closed"),
        gateway=gateway.Gateway(
            limit=limit,
            bands=[
                gateway.Band(priority=1, **band),
                gateway.Band(priority=0, ceiling=gate.ceiling, **band),
            ],
            dispatch="one_per_cycle",
            expiry_period_s=1,
        ),
        disaggregation=router.Disaggregation(
            order="decode_first", decider=router.UncachedTokens(min_uncached_tokens=512)
        ),
    )


def goodput(slo_class: str) -> Any:
    """The goodput of a class, as a figure of a run."""

    def of(result: Result) -> float:
        value = result.by_class()[slo_class]["goodput"]
        assert isinstance(value, float)
        return value

    return of


def row(documents_per_s: float, found: dict[str, Results]) -> list[str]:
    """The figures of a load, and whether the gain of the best gate exceeds the margin."""
    chat, documents = goodput("chat"), goodput("documents")
    gain = paired(values(found[_DECODE.name], chat), values(found[_PLAIN.name], chat))
    return [
        f"{documents_per_s:g}",
        *(shown(mean_interval(found[gate.name], chat)) for gate in _GATES),
        shown(gain),
        exceeds(gain, _MARGIN),
        *(shown(mean_interval(found[gate.name], documents)) for gate in (_PLAIN, _DECODE)),
    ]


def draw(loads_per_s: Sequence[float], runs: Sequence[dict[str, Results]], path: Path) -> None:
    """Goodput of the chats by the rate of documents, a line per gate."""
    figure = style.pyplot().figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    chat = goodput("chat")
    for gate, line in zip(_GATES, style.STYLES, strict=False):
        means = [sum(values(found[gate.name], chat)) / len(found[gate.name]) for found in runs]
        axes.plot(loads_per_s, means, marker="o", label=gate.name, **line)
    axes.set_xlabel("documents per second")
    axes.set_ylabel("goodput of the chats")
    axes.set_ylim(0, 1.02)
    style.legend_above(axes)
    style.save(figure, path)


_TEXT = """## A gate that one pool shuts for both

**Question.** Requests that the decode pool serves alone do not use the prefill pool. Do they suffer
if it is saturated?

**Answer.** {answer}

| | |
|---|---|
| servers | two for prefill, two for decoding: Llama 3.1 8B on an H100 each |
| chats | {chat_per_s} per second of 300 prompt and 200 output tokens, higher priority |
| documents | 6,000 prompt and 100 output tokens, lower priority |
| requests | {num_requests:,} in all, as a Poisson process |
| decider | prompts with at least 512 tokens that the decode server lacks go to the prefill pool |
| gate | of llm-d: metrics every 50 ms, one dispatch per ms while saturation is below 1 |
| goodput | share of the offered requests of a class with a first token within {targets} |
| seeds | {num_seeds} from {first_seed} on, paired; 95 % intervals |
| margin | {margin:g} in goodput, set after a trial with seeds 1 to 3 and before these runs |

{table}

![Goodput of the chats by the rate of documents](shared_gate.svg)

llm-d's saturation is the larger one of both pools. Once documents queue at the prefill pool, it is
above 1, and nothing is dispatched: the chats wait, although they have the higher priority and
hardly a request waits at the decode pool. A lower ceiling for the documents does not keep the
prefill pool below 1, because dozens of them are dispatched between two readings of the metrics.
Both cures keep the gate open: requests in flight (50 per server), which the gateway counts itself,
or the saturation of the decode pool alone, which llm-d does not offer.
"""


def section(
    loads_per_s: Sequence[float],
    seeds: range,
    *,
    num_requests: int,
    threads: int | None,
    picture: Path,
) -> str:
    """Runs this part, draws its figure and returns its section of the page."""
    runs = []
    for load_per_s in loads_per_s:
        common.say(f"{load_per_s:g} documents/s")
        several = [simulation(gate, load_per_s, num_requests) for gate in _GATES]
        results = run_many(several, seeds, threads=threads)
        runs.append({gate.name: found for gate, found in zip(_GATES, results, strict=True)})
    draw(loads_per_s, runs, picture)
    header = (
        "documents/s",
        *(f"chats, {gate.name}" for gate in _GATES),
        "gain of decode pool",
        f"above {_MARGIN:g}",
        *(f"documents, {gate.name}" for gate in (_PLAIN, _DECODE)),
    )
    rows = [row(load, found) for load, found in zip(loads_per_s, runs, strict=True)]
    answer = "Not at these loads."
    confirmed = [line for line in rows if line[6] == "confirmed"]
    if confirmed:
        line, last = confirmed[0], confirmed[-1]
        answer = (
            f"They do from {line[0]} documents/s on. At {last[0]} documents/s the goodput of the "
            f"chats is {last[1]}, and {last[4]} if the gate follows the decode pool alone."
        )
    return _TEXT.format(
        answer=answer,
        chat_per_s=_CHAT_PER_S,
        num_requests=num_requests,
        targets=" and ".join(f"{target:g} s ({name})" for name, target in _TARGETS_S.items()),
        num_seeds=len(seeds),
        first_seed=seeds[0],
        margin=_MARGIN,
        table=markdown(header, rows),
    )
