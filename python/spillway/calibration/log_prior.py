"""What logs of single steps say about a server, for the fit to requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spillway.calibration.profile import FittedLog
from spillway.calibration.refinement import COEFFICIENTS
from spillway.calibration.step_log import NAMES, StepTimes, fit_step_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway._core.instance import Roofline
    from spillway.data.arrays import Floats
    from spillway.data.recording import ServerFacts, StepLog


_LEAST_WIDTH = 0.02
"""A log states the steps of the engine; the time between them, and other runs, differ from it."""

_LEAST_SHARE = 0.05
"""The least start of a coefficient for which a log leaves no time, as a share of the prior."""


@dataclass(frozen=True, eq=False)
class LogPrior:
    """Coefficients from logs of steps, as the start and the prior of a fit to requests.

    Attributes
    ----------
    latency : Roofline
        With the exponent and the coefficients of the logs.
    theta : float array
        Logarithms of the coefficients, in the order of `COEFFICIENTS`.
    covariance : float array, coefficients x coefficients
        Of these logarithms. A coefficient that the logs do not determine, such as the entry delay,
        has a standard deviation of 1 and no correlation.
    times : StepTimes
        The fit to the logs.

    """

    latency: Roofline
    theta: Floats
    covariance: Floats
    times: StepTimes


def prior_of(logs: Sequence[StepLog]) -> LogPrior:
    """Fits logs of one server's steps, and states what they leave open."""
    times = fit_step_logs(list(logs))
    prior = times.prior
    linear = np.array(times.covariance)
    covariance = np.eye(len(COEFFICIENTS))
    values = np.array([getattr(prior, name) for name in COEFFICIENTS])
    spread = np.sqrt(np.diag(linear))
    known = [
        (at, NAMES.index(name))
        for at, name in enumerate(COEFFICIENTS)
        if name in NAMES and 0 < spread[NAMES.index(name)] < times.coefficients[name]
    ]
    for at, name in enumerate(COEFFICIENTS):
        if name in NAMES:
            values[at] = max(times.coefficients[name], _LEAST_SHARE * values[at])
    for at, row in known:
        for other, column in known:
            covariance[at, other] = linear[row, column] / (values[at] * values[other])
        covariance[at, at] += _LEAST_WIDTH**2
    coefficients = dict(zip(COEFFICIENTS, values.tolist(), strict=True))
    return LogPrior(
        latency=times.latency.replace(alpha_input_us=0, **coefficients),
        theta=np.log(values),
        covariance=covariance,
        times=times,
    )


def fitted_logs(known: LogPrior | None, logs: Sequence[StepLog]) -> tuple[FittedLog, ...]:
    """The logs of a fit, for its profile."""
    if known is None:
        return ()
    return tuple(
        FittedLog(log.name, log.sha256, log.num_steps, 100 * known.times.residual_scale)
        for log in logs
    )


def logged_states(logs: Sequence[StepLog], server: ServerFacts) -> Floats:
    """Requests and share of KV blocks in use at the steps of the logs.

    Empty unless the logs state the usage of the KV cache, and the facts its size.
    """
    size, blocks = server.block_size_tokens, server.num_kv_blocks
    found = [np.empty((0, 2))]
    for log in logs:
        if log.context_tokens is None or size is None or blocks is None:
            continue
        requests = log.prefill_requests + log.decode_requests
        states = np.stack([requests, log.context_tokens / (size * blocks)], axis=1)
        found.append(states[requests > 0])
    return np.concatenate(found)
