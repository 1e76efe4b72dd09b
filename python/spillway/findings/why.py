"""Why one request took as long as it did, or was lost."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.analysis.causes import MEANINGS, TimeByCause
from spillway.analysis.routing import on_an_idle_fleet, route
from spillway.config import files
from spillway.config.formatting import counted, without_keys
from spillway.findings.parts import deciders
from spillway.findings.run import Run

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from spillway.analysis.regret import AdmissionRegret
    from spillway.data.arrays import Floats
    from spillway.data.result_data import ResultData

_WHY = "why"


class Why(str):
    """Why a request took as long as it did, or was lost: a text that has its figures as data.

    Attributes
    ----------
    request_id
        The request.
    causes_s
        Its latency in seconds by cause; empty if the causes are unknown or it was lost.
    """

    request_id: str = ""
    causes_s: Mapping[str, float] = MappingProxyType({})

    @classmethod
    def of(cls, text: str, request_id: str, causes_s: Mapping[str, float]) -> Why:
        """The text with its figures."""
        found = cls(text)
        found.request_id, found.causes_s = request_id, causes_s
        return found

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """Text and figures, as `spillway why --json` prints them."""
        causes_s = dict(self.causes_s)
        return {"request_id": self.request_id, "text": str(self), "causes_s": causes_s}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes text and figures as JSON. Raises ConfigError if the file cannot be written."""
        files.save_results(path, _WHY, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Why:
        """Reads what `save` wrote. Raises ConfigError for another file."""
        known = files.load_results(path, _WHY, "Why.save")
        return cls.of(known["text"], known["request_id"], known["causes_s"])


def row_of(result: ResultData, request_id: str | int) -> int:
    """The row of a request. Raises KeyError with a sentence if there is none."""
    requests = result.requests
    is_text = isinstance(request_id, str)
    known = requests["request_id"] if is_text else np.arange(requests.num_rows)
    rows = np.flatnonzero(known == request_id)
    if not rows.size:
        raise KeyError(
            f"no request {request_id!r}: the run has {requests.num_rows:,}, the first is "
            f"{requests['request_id'][0] if requests.num_rows else 'none'}"
        )
    return int(rows[0])


def why(
    result: ResultData,
    request_id: str | int,
    causes: TimeByCause | str,
    regret: Callable[[], AdmissionRegret],
) -> Why:
    """See `Result.why`; `regret` is called for a request that was rejected."""
    row, requests = row_of(result, request_id), result.requests
    outcome, reason = str(requests["outcome"][row]), str(requests["reason"][row])
    who = f"tenant {requests['tenant'][row]}, class {requests['slo_class'][row]}"
    run = Run(result)
    attempts = int(requests["attempts"][row])
    why_lost = f" ({reason})" if reason else ""
    arrival = f"{requests['arrival_s'][row]:.6f} s with {requests['input_tokens'][row]}"
    lines = [
        f"request {requests['request_id'][row]} of {who}: {outcome}{why_lost}",
        f"arrived at {arrival} input tokens",
    ]
    began_s = _began_s(run, causes)
    if attempts > 1:
        when = "" if np.isnan(began_s[row]) else f", the last at {began_s[row]:.6f} s"
        lines.append(f"{attempts:,} attempts{when}; latencies count from the first")
    times = [
        f"{name.removesuffix('_s')} {float(requests[name][row]) * 1e3:.3f} ms"
        for name in ("queue_s", "scheduling_delay_s", "ttft_s", "e2e_s")
        if not np.isnan(requests[name][row])
    ]
    if times:
        lines.append(", ".join(times))
    if reason:
        lines += [f"decided by {text}" for text in deciders(run.parts, reason)]
    if detail := result.refusal_detail(row):
        which = "refused" if attempts <= 1 else "an attempt was refused"
        lines.append(f"{which}: {detail}")
    if run.has_times and not run.moved[row]:
        lines += _ahead(run, row, began_s)
    lines += _migrations(result, row)
    lines += _legs(result, row)
    lines += _by_cause(causes, row, requests["e2e_s"][row])
    lines += _to_meet(result, row, causes)
    if outcome == "rejected":
        lines.append(on_an_idle_fleet(result, row, regret))
    lines += route(result, row)
    own = {} if isinstance(causes, str) or np.isnan(requests["e2e_s"][row]) else causes.seconds(row)
    return Why.of(without_keys("\n".join(lines)), str(requests["request_id"][row]), own)


def _began_s(run: Run, causes: TimeByCause | str) -> Floats:
    """When the last attempt of each request arrived; NaN: unknown."""
    began_s = np.where(run.column("attempts") <= 1, run.arrival_s, np.nan)
    if isinstance(causes, str):
        return began_s
    later_s = run.arrival_s + causes.column_s("client")
    return np.where(np.isnan(run.column("e2e_s")), began_s, later_s)


def _ahead(run: Run, row: int, began_s: Floats) -> Iterator[str]:
    """The requests on its server, or anywhere, when its last attempt came."""
    instance = int(run.computed_at[row])
    if np.isnan(began_s[row]):
        yield "what was ahead of its last attempt is unknown: only its first arrival is recorded"
        return
    if instance < 0:
        in_flight = int(run.running_at(began_s[row : row + 1])[0])
        yield f"when it came, {counted(in_flight, 'request')} ran in the fleet"
        return
    dispatched_s = began_s + run.column("queue_s")
    at_s, stays = dispatched_s[row], run.stays
    sent_s = np.append(dispatched_s, stays.sent_s[len(dispatched_s) :])
    same = (stays.instance == instance) & (stays.row != row)
    is_known = ~(run.lost & np.isnan(run.column("e2e_s")))  # when lost requests left is not
    there = same & is_known[stays.row] & (sent_s <= at_s) & (stays.left_s > at_s)
    waiting = there & ~(stays.seated_s <= at_s)
    names = run.result._names()["tenants"]
    counts = np.bincount(run.column("tenant")[stays.row[there]], minlength=len(names))
    most = np.argsort(-counts, kind="stable")[:3]
    tenants = ", ".join(f"{names[i]} {counts[i]:,}" for i in most if counts[i])
    ahead = f"{int((there & ~waiting).sum()):,} running and {int(waiting.sum()):,} waiting"
    tenants = f" (by tenant: {tenants})" if tenants else ""
    moved = "; requests that went on at other instances are not counted" if run.moved.any() else ""
    yield f"when it was sent to instance {instance}, that had {ahead}{tenants}{moved}"


def _migrations(result: ResultData, row: int) -> Iterator[str]:
    """How often it went on at another instance, and what that computed again."""
    requests = result.requests
    migrations = int(requests["migrations"][row]) if "migrations" in requests else 0
    if migrations:
        again = int(requests["recomputed_tokens"][row])
        yield (
            f"its instance failed: it went on at another one, {migrations:,} times; {again:,} of "
            f"its tokens were computed again, last by instance {requests['instance'][row]}"
        )


def _legs(result: ResultData, row: int) -> Iterator[str]:
    """Where its prompt was computed, and how long the way to its second instance took."""
    requests = result.requests
    instance = int(requests["prefill_instance"][row]) if "prefill_instance" in requests else -1
    computed_s, transfer_s, wait_s = (
        float(requests[name][row]) if instance >= 0 else np.nan
        for name in ("prefill_end_s", "transfer_s", "decode_queue_s")
    )
    if np.isnan(computed_s):
        return
    text = f"its prompt was computed by instance {instance} until {computed_s:.6f} s"
    if not np.isnan(wait_s):
        text += f"; it waited {wait_s * 1e3:.3f} ms for instance {requests['instance'][row]}"
    if not np.isnan(transfer_s):
        text += f", to which it was moved in {transfer_s * 1e3:.3f} ms"
    yield text


def _by_cause(causes: TimeByCause | str, row: int, e2e_s: float) -> Iterator[str]:
    if np.isnan(e2e_s):
        return
    if isinstance(causes, str):
        yield f"its time by cause is unknown: {causes}"
        return
    for name, value in causes.seconds(row).items():
        yield f"  {value * 1e3:12.3f} ms  {value / e2e_s:6.1%}  {name}: {MEANINGS[name]}"


def _to_meet(result: ResultData, row: int, causes: TimeByCause | str) -> Iterator[str]:
    """What would have made it meet the targets of its class."""
    requests = result.requests
    by_name = {known.name: known for known in result.simulation.slo_classes}
    promises = by_name.get(str(requests["slo_class"][row]))
    own = {} if isinstance(causes, str) else causes.seconds(row)
    waits = ("client", "admission", "gateway_queue", "ingress", "step_under_way", "seats")
    before = (*waits, "kv_memory", "token_budget")
    for metric in ("ttft", "tpot", "e2e"):
        target_s = getattr(promises, f"target_{metric}_s", None)
        latency_s = float(requests[f"{metric}_s"][row])
        if target_s is None or np.isnan(latency_s):
            continue
        if latency_s <= target_s:
            yield f"{metric}: within the target of {target_s * 1e3:.6g} ms"
            continue
        excess_s = latency_s - target_s
        text = f"{metric}: {excess_s * 1e3:.3f} ms over the target of {target_s * 1e3:.6g} ms"
        if metric == "tpot":
            excess_s *= max(int(requests["output_tokens"][row]) - 1, 1)
        work = ("decode", "prefill_own") if metric != "e2e" else ()
        spent = {
            name: value
            for name, value in own.items()
            if name not in work and (metric == "e2e" or (name in before) != (metric == "tpot"))
        }
        if "failure" in own and metric != "e2e":
            others_s = sum(own.get(name, 0.0) for name in (*before, "prefill_own"))
            early_s = min(max(float(requests["ttft_s"][row]) - others_s, 0.0), own["failure"])
            spent["failure"] = early_s if metric == "ttft" else own["failure"] - early_s
        if spent:
            text += f"; {_enough(spent, excess_s)}"
        yield text


def _enough(spent: Mapping[str, float], excess_s: float) -> str:
    """The causes without which a target would have been met."""
    largest = sorted(spent, key=lambda name: -spent[name])
    single = [name for name in largest if spent[name] >= excess_s]
    if single:
        return f"without {' or '.join(single)} it would have met it"
    for count in range(2, len(largest) + 1):
        if sum(spent[name] for name in largest[:count]) >= excess_s:
            return f"without {' and '.join(largest[:count])} it would have met it"
    return "it would have missed it without any wait"
