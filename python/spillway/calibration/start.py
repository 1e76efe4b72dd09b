"""Where fits of step times begin."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway._core.instance import Roofline
from spillway.calibration.catalog import architecture_of, server_of
from spillway.calibration.refinement import OPTIONAL, coefficients_of
from spillway.servers import physics

if TYPE_CHECKING:
    from spillway.data.arrays import Floats
    from spillway.data.recording import ServerFacts
    from spillway.servers.server import Server


START = Roofline(
    alpha0_us=5000,
    alpha_input_us=0.5,
    constant_us=2800,
    weights_us=9800,
    token_us=50,
    decode_us=30,
    decode_context_us=0.06,
    prefill_context_us=0.0017,
)
"""The coefficients with which a fit begins, and the means of its weak prior.

Estimates from datasheets: Qwen3-14B in bf16 on an H100, 90% of the memory bandwidth, 60% of the
arithmetic.
"""

_ENTRY_WIDTH = 1.5  # of the logarithm of the entry delay per prompt token
_OWN_WIDTH = 0.1  # of each coefficient by itself, beside what its efficiency leaves open


@dataclass(frozen=True, eq=False)
class Start:
    """Where a fit begins.

    Attributes
    ----------
    latency : Roofline
    covariance : float array
        Of the logarithms of its coefficients.
    source : str
    is_scaled : bool
        Whether its step times are already those of such a server.

    """

    latency: Roofline
    covariance: Floats
    source: str
    is_scaled: bool


def start_of(facts: ServerFacts, dtype: str | None = None) -> Start:
    """The step times of the catalog's physics; of an unknown server, those of `START`."""
    server = server_of(facts, dtype)
    if server is not None:
        return _physical(server)
    latency = START
    architecture = architecture_of(facts.model)
    if architecture is not None and architecture.is_mixture:
        count = architecture.parameters
        ratio = count.experts / (count.attention + count.dense + count.head)
        latency = latency.replace(
            expert_weights_us=ratio * latency.weights_us, expert_share=architecture.expert_share
        )
    names = list(coefficients_of(latency))
    widths = np.array([_ENTRY_WIDTH if name in OPTIONAL[:1] else 1.0 for name in names])
    source = "the physics of a dense 14B on an H100, scaled: state model and gpu for their own"
    return Start(latency, np.diag(widths**2), source, is_scaled=False)


def _physical(server: Server) -> Start:
    """The start, with the uncertainty of the efficiencies and of the time per prompt token."""
    known = server.knowledge.efficiencies
    latency = _with_entry(physics.roofline(server.placement, known))
    names = list(coefficients_of(latency))
    here = np.log(list(coefficients_of(latency).values()))
    step = 0.01
    slopes = []
    for axis in np.eye(len(known.logs)):
        moved = physics.Efficiencies.from_logs(known.logs + step * axis)
        there = coefficients_of(_with_entry(physics.roofline(server.placement, moved)))
        slopes.append((np.log(list(there.values())) - here) / step)
    _, spread = physics.prior_of(server.architecture)
    widths = np.array(dataclasses.astuple(spread))
    moves = np.array(slopes).T * widths
    own = [_ENTRY_WIDTH if name == "alpha_input_us" else _OWN_WIDTH for name in names]
    covariance = moves @ moves.T + np.diag(np.square(own))
    what = f"the catalog's physics of {server.architecture.name} on {server.accelerator.name}"
    return Start(latency, covariance, what, is_scaled=True)


def _with_entry(latency: Roofline) -> Roofline:
    return latency.replace(alpha_input_us=START.alpha_input_us)
