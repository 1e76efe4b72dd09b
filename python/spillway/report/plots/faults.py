"""When instances and gateways failed, in figures with an axis of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

    from spillway.data.result_data import ResultData

_LOOKS: dict[str, dict[str, Any]] = {
    "failed, unnoticed": {"facecolor": "#D55E00", "alpha": 0.45, "hatch": "////"},
    "failed": {"facecolor": "#D55E00", "alpha": 0.2},
    "slow": {"facecolor": "#E69F00", "alpha": 0.25},
    "KV memory lost": {"facecolor": "#0072B2", "alpha": 0.5},
    "gateway failed": {"facecolor": "#CC79A7", "alpha": 0.25},
}


class FaultSpan(NamedTuple):
    """A part of a fault.

    `look` is failed (a crash or hang), failed, unnoticed, slow, KV memory lost, or gateway failed;
    of the last one, `instance` is None. The loss of KV memory is an instant.
    """

    look: str
    instance: int | None
    begin_s: float
    end_s: float


def spans(result: ResultData) -> Iterator[FaultSpan]:
    """The parts of all faults, up to the end of the run."""
    for fault in result.faults:
        begin_s = fault["began_s"]
        if begin_s >= result.end_s:
            continue
        end_s, noticed_s = (
            result.end_s if fault[name] is None else fault[name]
            for name in ("ended_s", "detected_s")
        )
        if fault["kind"] == "slowdown":
            yield FaultSpan("slow", fault["instance"], begin_s, end_s)
            continue
        if fault["kind"] == "kv_loss":
            yield FaultSpan("KV memory lost", fault["instance"], begin_s, begin_s)
            continue
        if fault["kind"] == "gateway_crash":
            yield FaultSpan("gateway failed", None, begin_s, end_s)
            continue
        noticed_s = min(noticed_s, end_s)
        if noticed_s > begin_s:
            yield FaultSpan("failed, unnoticed", fault["instance"], begin_s, noticed_s)
        if end_s > noticed_s:
            yield FaultSpan("failed", fault["instance"], noticed_s, end_s)


def mark(axes: Axes, result: ResultData, *, by_instance: bool = False, labels: bool = True) -> None:
    """Shades the faults of a run: over the whole height, or in the row of each instance."""
    found = [span for span in spans(result) if not (by_instance and span.instance is None)]
    limits_s = axes.get_xlim()
    least_s = 0.003 * (limits_s[1] - limits_s[0])  # what can be seen
    for look, style in _LOOKS.items():
        rows_of = sorted({span.instance for span in found if span.instance is not None})
        for instance in rows_of if by_instance else [None]:
            own = [
                (span.begin_s, max(span.end_s - span.begin_s, least_s))
                for span in found
                if span.look == look and instance in (None, span.instance)
            ]
            if not own:
                continue
            rows = (0, 1) if instance is None else (instance - 0.5, 1)
            place: dict[str, Any] = {"alpha": min(2 * style["alpha"], 1)}
            if not by_instance:
                place = {"transform": axes.get_xaxis_transform(), "zorder": 0.5}
            axes.broken_barh(own, rows, linewidth=0, **(style | place))
    if found and labels:
        for look, style in _LOOKS.items():
            if any(span.look == look for span in found):
                axes.fill_between([], [], label=look, linewidth=0, **style)
    axes.set_xlim(limits_s)
