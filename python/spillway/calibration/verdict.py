"""Whether a fit is a server: what it identifies, where it holds, and what does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spillway import instance
from spillway.calibration.refinement import latency_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.calibration.catalog import Limit
    from spillway.calibration.refinement import Latency
    from spillway.data.arrays import Floats

    Kind = Literal["identified", "usable", "poor"]


KINDS = ("identified", "usable", "poor")

MOST_ERROR = {"itl": 0.10, "e2e": 0.10, "capacity": 0.10, "ttft": 0.25}
"""Relative errors of a fitted mean beyond which, noise apart, a server does not fit."""

MOST_SHARE_ERROR = 15.0
"""The same of shares of histograms, in percentage points."""

MOST_SPREAD = 0.10
"""Relative standard errors of a step time beyond which it is not identified."""

_MOST_ENTRY_S = 2.0
_MOST_ENTRY_PER_TOKEN_S = 50e-6
"""Requests that take longer to an idle engine did not go straight there."""

_WAITED = (
    "requests waited outside of the engine, e.g. in a queue before it, or behind load that the "
    "file does not list"
)

_CONFIDENCE = 1.96
_KNOWN = ("stated", "fitted")  # sources of limits
_BEYOND = 2.0  # how far beyond the fitted batches an identified server is known


@dataclass(frozen=True)
class Verdict:
    """What a fit is worth.

    Attributes
    ----------
    kind : str
        `identified`: the step times are known up to twice the fitted requests in flight, and the
        limits are stated or identified. `usable`: known in the fitted ranges. `poor`: the runs do
        not fit, or not even their own step times are known; this is no server.
    misfits : tuple of str
        What does not fit, and by how much.
    causes : tuple of str
        What probably explains that, the likeliest first.
    open : tuple of str
        What is not identified.
    measure : tuple of str
        What to state or to measure next.
    ranges : mapping of pairs
        The fitted loads (`requests_per_s`), lengths (`input_tokens`, `output_tokens`), requests
        `in_flight` and `cached_share` of prompts: least and most.

    """

    kind: Kind
    misfits: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    measure: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] | None = None

    @property
    def is_server(self) -> bool:
        """Whether the fit may stand for the server."""
        return self.kind != "poor"

    def text(self) -> str:
        """The verdict in lines."""
        lines = [f"verdict: {self.kind}"]
        if self.ranges:
            shown = [
                f"{name.replace('_', ' ')} {low:.4g} to {high:.4g}"
                for name, (low, high) in self.ranges.items()
            ]
            lines.append(f"fitted: {', '.join(shown)}")
        for name in ("misfits", "causes", "open", "measure"):
            lines += [f"{_WORDS[name]}: {text}" for text in getattr(self, name)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        ranges = {name: list(pair) for name, pair in (self.ranges or {}).items()}
        lists = {name: list(getattr(self, name)) for name in _WORDS}
        return {"kind": self.kind, **lists, "ranges": ranges}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Verdict:
        """The verdict of `to_dict`; ValueError if it is none."""
        if document["kind"] not in KINDS:
            raise ValueError(f"verdict.kind: {document['kind']}")
        lists: dict[str, Any] = {name: tuple(map(str, document[name])) for name in _WORDS}
        ranges = {
            str(name): (float(low), float(high)) for name, (low, high) in document["ranges"].items()
        }
        return cls(document["kind"], ranges=ranges, **lists)


_WORDS = {
    "misfits": "does not fit",
    "causes": "likely cause",
    "open": "not identified",
    "measure": "measure next",
}


def misfits_of(
    run: str,
    errors_percent: Mapping[str, float],
    noise: Mapping[str, float],
    *,
    closed_loop: bool,
) -> list[str]:
    """The means of a run that differ by more than `MOST_ERROR` and their noise.

    `noise`: standard deviations of the errors' logarithms. TTFT in a closed loop depends on which
    users fall into step, so it is not judged.
    """
    found = []
    for name, error in errors_percent.items():
        statistic, _, metric = name.rpartition("_")
        if closed_loop and metric == "ttft":
            continue
        if not np.isfinite(error):
            found.append(f"{run}: no request is served on such a server ({name})")
            break
        if statistic == "share":
            if abs(error) > MOST_SHARE_ERROR:
                found.append(f"{run}: shares of {metric} by up to {error:.0f} points")
            continue
        most = math.log1p(MOST_ERROR[metric]) + _CONFIDENCE * noise.get(metric, 0.0)
        if abs(math.log(max(1 + error / 100, 1e-9))) > most:
            what = {"mean": "mean ", "p50": "median "}.get(statistic, "")
            label = {"ttft": "TTFT", "itl": "inter-token latency", "e2e": "E2E latency"}
            found.append(f"{run}: {what}{label.get(metric, metric)} {error:+.0f}%")
    return found


@dataclass(frozen=True)
class Batch:
    """A step: prompt tokens, requests that decode, and the context of each of these."""

    prompt_tokens: float
    decode_requests: float
    context_tokens: float


def step_us(latency: Latency, batch: Batch) -> float:
    """The time of a step of a roofline."""
    assert isinstance(latency, instance.Roofline)
    prompt, decode = batch.prompt_tokens, batch.decode_requests
    tokens = prompt + decode
    weights = latency.weights_us + latency.expert_weights_us * (
        1 - (1 - latency.expert_share) ** tokens
    )
    work, p = latency.token_us * tokens, latency.norm
    matrices = max(weights, work) if p is None else (weights**p + work**p) ** (1 / p)
    attention = latency.prefill_context_us * prompt * prompt / 2
    reads = decode * (latency.decode_us + latency.decode_context_us * batch.context_tokens)
    return float(latency.constant_us + matrices + attention + reads)


def spread_of(latency: Latency, theta: Floats, covariance: Floats, batch: Batch) -> float:
    """Relative standard error of a step time, from that of the logarithms of the coefficients."""
    here = step_us(latency, batch)
    slopes = []
    for axis in np.eye(len(theta)):
        moved = step_us(latency_of(theta + 0.01 * axis, latency), batch)
        slopes.append((moved / here - 1) / 0.01)
    gradient = np.array(slopes)
    return float(np.sqrt(max(0.0, gradient @ covariance @ gradient)))


def judged(
    *,
    latency: Latency,
    theta: Floats,
    covariance: Floats,
    states: Floats,
    ranges: Mapping[str, tuple[float, float]],
    limits: Mapping[str, Limit],
    misfits: Sequence[str],
    causes: Sequence[str],
    unknown: Sequence[str] = (),
    measure: Sequence[str] = (),
) -> Verdict:
    """The verdict on a fit.

    `states`: running requests and their share of the KV memory, as fitted. `unknown`, `measure`:
    what is not identified for other reasons, and what would identify it.
    """
    unknown, measure, misfits = [*unknown], [*measure], [*misfits]
    prompt_tokens = ranges.get("input_tokens", (0.0, 0.0))[1]
    entry_s = (latency.alpha0_us + getattr(latency, "alpha_input_us", 0) * prompt_tokens) / 1e6
    if entry_s > _MOST_ENTRY_S + _MOST_ENTRY_PER_TOKEN_S * prompt_tokens:
        misfits.append(f"{entry_s:,.3g} s of TTFT pass before the first step of a long prompt")
        causes = [_WAITED, *causes]
    is_pinned = not ranges or len(states) > 0
    if isinstance(latency, instance.Roofline) and len(states):
        running = float(np.percentile(states[:, 0], 95))
        low, high = ranges.get("input_tokens", (1.0, 1.0))
        output = ranges.get("output_tokens", (1.0, 1.0))[1]
        context = (low + high + output) / 2
        beyond = min(_BEYOND * running, limits["max_num_seqs"].value)
        prompt = min(high, limits["max_num_batched_tokens"].value)
        batches = {
            f"a step of {max(1.0, running):.0f} decoding requests": Batch(0, running, context),
            f"a step of {beyond:.0f} decoding requests": Batch(0, beyond, context),
            f"a step with {prompt:.0f} prompt tokens": Batch(prompt, 0, 0),
        }
        for i, (name, batch) in enumerate(batches.items()):
            spread = spread_of(latency, theta, covariance, batch)
            if not spread <= MOST_SPREAD:
                unknown.append(f"{name} (known to ±{_percent(spread)})")
                is_pinned &= i > 0
                measure.append(_NEXT[i].format(running=running, tokens=prompt))
    if not limits["num_kv_blocks"].source.startswith(_KNOWN):
        unknown.append("the size of the KV memory: no measured request waits for it")
        measure.append(
            "num_kv_blocks, which vLLM logs as it starts (GPU KV cache size): state it, or measure "
            "a load at which requests wait for memory"
        )
    kind: Kind = "usable" if unknown else "identified"
    if misfits or not is_pinned:
        kind = "poor"
    return Verdict(
        kind, tuple(misfits), tuple(causes), tuple(unknown), tuple(measure), dict(ranges)
    )


_NEXT = (
    "a longer run, or one of a lower load, at which single requests decode",
    "a load with more than {running:.0f} requests in flight",
    "prompts of other lengths, from a few tokens to more than {tokens:.0f}",
)


def _percent(spread: float) -> str:
    return f"{100 * spread:.0f}%" if spread < 1 else "more than 100%"
