"""Functions of the core that take arrays refuse what they cannot use, and never crash.

Run them against an extension with AddressSanitizer to see reads beyond an array as well.
"""

from __future__ import annotations

import random
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import scaled

from spillway import ConfigError, UsageError, _core
from spillway._core import numerics, search, workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

REFUSED = (TypeError, ValueError, ConfigError, UsageError, OverflowError, MemoryError)
POINTS = np.array([[0.1, 0.2], [0.5, 0.7], [0.9, 0.3], [0.4, 0.4]])
VALUES = np.array([1.0, 0.5, 0.7, 0.2])
NOISE = np.full(4, 0.01)


def _hyperparameters() -> Any:
    return search.Hyperparameters(length_scales=np.array([0.5, 0.5]))


def _process() -> Any:
    return search.GaussianProcess(POINTS, VALUES, NOISE, _hyperparameters())


def _acquisition() -> Any:
    return search.Acquisition(_process())


def _trace(**arrays: Any) -> Any:
    return workload.make_trace(tenants=["a"], slo_classes=["c"], request_id=[], file="f", **arrays)


BATCHES = np.array(
    [[1, 0, 1, 10, 1], [2, 10, 3, 40, 1], [4, 0, 0, 90, 2], [8, 20, 2, 10, 1]], dtype=float
)
COEFFICIENTS = np.array([5000.0, 10.0, 20.0, 30.0, 0.1, 0.1, 5.0])
CALLS: dict[str, tuple[Callable[..., Any], dict[str, npt.ArrayLike]]] = {
    "numerics.fit_steps": (
        lambda **a: numerics.fit_steps(norm=2.0, **a),
        {
            "batches": BATCHES,
            "step_us": np.array([6000.0, 7000, 8000, 9000]),
            "weights": np.ones(4),
            "prior_mean": COEFFICIENTS,
            "prior_width": np.ones(7),
            "start": COEFFICIENTS,
        },
    ),
    "numerics.nonnegative_least_squares": (
        numerics.nonnegative_least_squares,
        {"a": POINTS, "b": VALUES},
    ),
    "numerics.step_times_us": (
        lambda **a: numerics.step_times_us(norm=2.0, **a),
        {"batches": BATCHES, "coefficients": COEFFICIENTS},
    ),
    "search.Acquisition.values": (lambda points: _acquisition().values(points), {"points": POINTS}),
    "search.Acquisition.value_and_gradient": (
        lambda point: _acquisition().value_and_gradient(point),
        {"point": POINTS[0]},
    ),
    "search.Acquisition.maximum": (
        lambda candidates: _acquisition().maximum(candidates, [[], []], max_evaluations=3),
        {"candidates": POINTS},
    ),
    "search.Acquisition.believe": (
        lambda point: _acquisition().believe(point, [0.1]),
        {"point": POINTS[0]},
    ),
    "search.GaussianProcess.__init__": (
        lambda **a: search.GaussianProcess(hyperparameters=_hyperparameters(), **a),
        {"points": POINTS, "values": VALUES, "noise_variance": NOISE},
    ),
    "search.GaussianProcess.predict": (
        lambda points: _process().predict(points),
        {"points": POINTS},
    ),
    "search.GaussianProcess.believe": (
        lambda point: _process().believe(point, 0.1),
        {"point": POINTS[0]},
    ),
    "search.Hyperparameters.__init__": (
        search.Hyperparameters,
        {"length_scales": np.array([0.5, 0.5])},
    ),
    "search.fit": (
        lambda **a: search.fit(max_evaluations=3, **a),
        {"points": POINTS, "values": VALUES, "noise_variance": NOISE},
    ),
    "search.log_marginal_likelihood": (
        lambda **a: search.log_marginal_likelihood(hyperparameters=_hyperparameters(), **a),
        {"points": POINTS, "values": VALUES, "noise_variance": NOISE},
    ),
    "workload.make_trace": (
        _trace,
        {
            "arrival_ns": np.array([0, 10, 20]),
            "input_tokens": np.array([5, 6, 7], dtype=np.int32),
            "output_tokens": np.array([1, 2, 3], dtype=np.int32),
            "tenant": np.zeros(3, dtype=np.uint16),
            "slo_class": np.zeros(3, dtype=np.uint16),
            "segment_begin": np.array([0, 1, 2, 3], dtype=np.uint32),
            "segment_content": np.array([1, 2, 3], dtype=np.uint64),
            "segment_tokens": np.array([5, 6, 7], dtype=np.uint32),
        },
    ),
}


def _taking_arrays(module: Any, prefix: str = "") -> Iterator[str]:
    """The functions and methods of the core whose signatures have arrays as arguments."""
    for name, member in vars(module).items():
        if isinstance(member, types.ModuleType):
            if member.__name__.startswith("spillway._core."):
                yield from _taking_arrays(member, f"{name}.")
        elif isinstance(member, type):
            yield from _taking_arrays(member, f"{prefix}{name}.")
        elif "ArrayLike" in (member.__doc__ or "").partition(" -> ")[0]:
            yield prefix + name


def hostile(array: npt.ArrayLike, rng: random.Random) -> Any:
    """An array, or something else, that resembles another one."""
    given = np.asarray(array)
    size = rng.choice((0, 1, given.size + 1, max(0, given.size - 1), 1000))
    extreme = rng.choice((np.nan, np.inf, -np.inf, -1.0, 1e308, 5e-324, 2.0**63, -(2.0**63), 0.0))
    with np.errstate(all="ignore"):
        return rng.choice(
            (
                lambda: np.resize(given, (size, *given.shape[1:])),
                lambda: np.full(given.shape, extreme),
                lambda: np.where(np.arange(given.size).reshape(given.shape) == 1, extreme, given),
                lambda: given.astype(rng.choice((np.float32, np.int8, np.uint64, bool, complex))),
                lambda: given.astype(object),
                lambda: given.astype(str),
                lambda: given[..., None],
                lambda: given.reshape(-1),
                lambda: given[0],
                lambda: np.asfortranarray(given),
                lambda: given[::-1],
                lambda: np.repeat(given, 2, axis=0)[::2],
                lambda: np.broadcast_to(given[:1], given.shape),
                lambda: given.astype(given.dtype.newbyteorder()),
                lambda: np.lib.stride_tricks.as_strided(given, given.shape, (0,) * given.ndim),
                lambda: np.zeros((0, 0)),
                lambda: np.zeros((2, 3, 4)),
                given.tolist,
                lambda: None,
                lambda: "text",
                lambda: [[1], [2, 3]],
            )
        )()


def test_every_function_with_arrays_is_listed() -> None:
    assert set(_taking_arrays(_core)) == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_valid_arrays_are_taken(name: str) -> None:
    call, arrays = CALLS[name]
    call(**arrays)


@pytest.mark.parametrize("name", CALLS)
def test_hostile_arrays_are_used_or_refused(name: str) -> None:
    call, arrays = CALLS[name]
    for seed in range(scaled(1200)):
        rng = random.Random(f"{name} {seed}")
        changed = dict(arrays)
        for column in rng.sample(list(arrays), rng.randint(1, min(2, len(arrays)))):
            changed[column] = hostile(arrays[column], rng)
        for array in changed.values():
            if isinstance(array, np.ndarray) and rng.random() < 0.3:
                array.flags.writeable = False
        try:
            call(**changed)
        except REFUSED as error:
            assert str(error)  # noqa: PT017
