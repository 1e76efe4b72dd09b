"""What requests spent their time on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.report.style import axes_or_new, legend_above

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

_COLORS = {
    "client": "#BBBBBB", "admission": "#F6C9A0", "gateway_queue": "#E69F00", "ingress": "#B07AA1",
    "step_under_way": "#FFF3A3", "seats": "#F0E442", "kv_memory": "#CC79A7",
    "token_budget": "#9C755F", "prefill_own": "#D55E00", "handoff": "#999933",
    "transfer": "#44AA99", "prefill_of_others": "#F4A582",
    "decode": "#0072B2", "lockstep": "#56B4E9", "preemption": "#7F3C8D", "recomputation": "#E377C2",
    "service": "#009E73", "failure": "#000000",
}  # fmt: skip
_LEAST = 0.002  # of the longest bar: thinner parts cannot be seen


def causes(mean_s: Mapping[str, Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Draws a bar per group of requests: its mean latency, divided into causes.

    Parameters
    ----------
    mean_s
        By group, the mean seconds of each cause, as `TimeByCause.groups()` has them.
    ax
        Axes to draw into; default: those of a new figure.

    Raises ValueError if no request completed.

    """
    longest = max((sum(of.values()) for of in mean_s.values()), default=0.0)
    if not longest:
        raise ValueError("there is nothing to draw: no request completed")
    axes = axes_or_new(ax)
    left = [0.0] * len(mean_s)
    for name in next(iter(mean_s.values())):
        widths = [of[name] for of in mean_s.values()]
        if max(widths) >= _LEAST * longest:
            label = name.replace("_", " ")
            axes.barh(range(len(left)), widths, left=left, label=label, color=_COLORS.get(name))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(left)), list(mean_s))
    axes.invert_yaxis()
    axes.set_xlabel("mean latency of completed requests (s)")
    axes.grid(axis="x", alpha=0.3)
    legend_above(axes)
    return axes
