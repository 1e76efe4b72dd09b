"""A server that was fitted to measurements."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import instance
from spillway._core.sim import ConfigError
from spillway.calibration.hull import Hull, states_of
from spillway.calibration.refinement import coefficients_of, form_of, latency_of
from spillway.calibration.replay import group_of
from spillway.calibration.step_log import correlated_pairs
from spillway.calibration.verdict import Verdict
from spillway.config.classes import config_error
from spillway.config.files import read_settings
from spillway.config.filesystem import replacing
from spillway.config.messages import note
from spillway.config.yaml import to_yaml
from spillway.data.recording import ServerFacts
from spillway.servers.uncertainty import moved_logs

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from spillway.data.arrays import Floats
    from spillway.data.result_data import ResultData


class UnidentifiedError(ValueError):
    """A fit that is no server: its verdict is `poor`.

    Attributes
    ----------
    profile : Profile
        The fit, whose `verdict` says what does not fit and what to measure next.

    """

    def __init__(self, profile: Profile) -> None:
        assert profile.verdict is not None
        super().__init__(f"the fit is no server\n{profile.verdict.text()}")
        self.profile = profile


_KIND = "server_profile"
_VERSION = 1
HOST = ("constant_us", "decode_us", "alpha0_us", "alpha_input_us")
"""The coefficients of a roofline that belong to the machine and the engine's version: per step, per
decoding request, per request and per prompt token. The others belong to the accelerator."""

_INSIDE = 0.95
_MOST_ERROR = 1.0


@dataclass(frozen=True)
class FittedRun:
    """A run of the fit: its name and digest, the compared requests, and the remaining errors.

    `errors_percent`: mean and median of TTFT, ITL and E2E and the capacity, simulated against
    measured. Of histograms: the means, and as `share` the largest difference between the shares of
    observations below a bound, in percentage points.
    """

    name: str
    sha256: str
    requests: int
    errors_percent: dict[str, float]


@dataclass(frozen=True)
class FittedLog:
    """A log of steps of the fit: its name and digest, the steps, and the remaining error.

    `error_percent`: robust relative standard deviation of a step of all logs.
    """

    name: str
    sha256: str
    steps: int
    error_percent: float


@dataclass(frozen=True)
class Choice:
    """A form of the model that was tried, and the mean cost of a run that it was not fitted to."""

    form: str
    async_scheduling: bool
    held_out_cost: float


@dataclass(frozen=True)
class Profile:
    """A server fitted to measurements, and how well it is known.

    Attributes
    ----------
    server : ServerFacts
    latency : Roofline or StepTable
        The fitted step times.
    async_scheduling : bool
    turnaround_s : float
        Median time that the client took to send the next request at its limit; 0: never at it.
    covariance : tuple of tuples
        Of the natural logarithms of the coefficients, in the order of `coefficients`.
    hull : Hull
        The batch states of the fitted runs and logs; without vertices if logs do not state them.
    runs : tuple of FittedRun
    logs : tuple of FittedLog
    left_out : tuple of str
        Runs that were not fitted, and why.
    choices : tuple of Choice
        All forms that were tried, the best first.
    verdict : Verdict, optional
        Whether the fit is a server, and where it holds; None: it is from an older version.
    sources : mapping
        The limits of the engine: value, and where it comes from.
    start : str
        Where the fit began.
    warms : int
        How often the first turns of sessions were sent before the runs; see `Replay`.

    """

    server: ServerFacts
    latency: instance.Roofline | instance.StepTable
    async_scheduling: bool
    turnaround_s: float
    covariance: tuple[tuple[float, ...], ...]
    hull: Hull
    runs: tuple[FittedRun, ...]
    logs: tuple[FittedLog, ...] = ()
    left_out: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    verdict: Verdict | None = None
    sources: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    start: str = ""
    warms: int = 0

    @property
    def coefficients(self) -> dict[str, float]:
        """What was fitted: coefficients in microseconds, scales of a table."""
        return coefficients_of(self.latency)

    def on_host_of(self, other: Profile) -> Profile:
        """The accelerator of this fit in the machine, or with the engine version, of another.

        `HOST` names the coefficients that come from the other fit; those of the accelerator, and
        the limits of the engine, stay. Where both hold is not known: the result has no hull and no
        verdict, and its parts are as uncertain as in their fits. Warns where a fit knows only the
        sum of a coefficient of the host and one of the accelerator.

        Raises ConfigError unless both are rooflines.
        """
        for profile in (self, other):
            if not isinstance(profile.latency, instance.Roofline):
                kind = profile.latency.kind
                raise config_error([("latency", kind, "must be a roofline in both fits")])
        if mixed := {
            f"{a} and {b}"
            for profile in (self, other)
            for a, b, _ in profile.correlated()
            if (a in HOST) != (b in HOST)
        }:
            note(f"{', '.join(sorted(mixed))}: only together known, and here of two fits")
        theirs: dict[str, Any] = {
            name: value for name, value in other.coefficients.items() if name in HOST
        }
        latency = self.latency.replace(**theirs)
        names, others = list(coefficients_of(latency)), list(other.coefficients)
        own = list(self.coefficients)
        covariance = np.zeros((len(names), len(names)))
        for i, a in enumerate(names):
            for j, b in enumerate(names):
                of, known = (other, others) if a in HOST else (self, own)
                if (a in HOST) == (b in HOST) and a in known and b in known:
                    covariance[i, j] = of.covariance[known.index(a)][known.index(b)]
        return dataclasses.replace(
            self,
            latency=latency,
            covariance=tuple(tuple(row) for row in covariance.tolist()),
            async_scheduling=other.async_scheduling,
            hull=Hull(()),
            runs=(),
            logs=(),
            choices=(),
            verdict=None,
            start=f"the accelerator of {self.server.key}, the host of {other.server.key}",
        )

    @property
    def theta(self) -> Floats:
        """The logarithms of the coefficients."""
        return np.log(list(self.coefficients.values()))

    @property
    def group(self) -> instance.InstanceGroup:
        """An instance with these step times, the stated settings and the fitted batch states."""
        group: instance.InstanceGroup = group_of(
            self.server, self.latency, ahead=self.async_scheduling
        )
        role: Any = self.server.role or group.role
        return group.replace(fitted_states=self.hull.corners(group), role=role)

    def draws(self, count: int, seed: int = 0) -> list[instance.InstanceGroup]:
        """Instances with coefficients drawn from the uncertainty of the fit."""
        zero = np.zeros(len(self.coefficients))
        rng = np.random.default_rng(seed)
        moves = rng.multivariate_normal(zero, np.array(self.covariance), size=count)
        return [
            self.group.replace(latency=latency_of(self.theta + moved_logs(move), self.latency))
            for move in moves
        ]

    def relative_errors(self) -> dict[str, float]:
        """Relative standard error of each coefficient."""
        spread = np.sqrt(np.diag(np.array(self.covariance)))
        return dict(zip(self.coefficients, np.expm1(spread).tolist(), strict=True))

    def correlated(self) -> list[tuple[str, str, float]]:
        """Pairs of coefficients that the data do not tell apart: correlated above 0.95."""
        names = list(self.coefficients)
        pairs = correlated_pairs(np.array(self.covariance))
        return [(names[i], names[j], correlation) for i, j, correlation in pairs]

    def share_inside(self, result: ResultData) -> float:
        """Share of the sampled time of a run at which its batch was in the hull of the fit.

        Warns if it is below 0.95. NaN if the states of the fit are not known. The run needs
        `metrics.timeline_step_s`.
        """
        share = self.hull.share_inside(states_of(result))
        if share < _INSIDE:
            note(
                f"{1 - share:.0%} of the simulated time is outside the batch states that the "
                "server was fitted to; its latencies there are extrapolated"
            )
        return share

    def text(self) -> str:
        """What was fitted, how well it is known, and what errors remain, as text."""
        ahead = "one step ahead" if self.async_scheduling else "step by step"
        lines = [self.server.key, f"{form_of(self.latency)}, scheduling {ahead}"]
        if self.verdict is not None:
            lines.append(self.verdict.text())
        lines.append("")
        errors = self.relative_errors()
        width = max(map(len, self.coefficients))
        for name, value in self.coefficients.items():
            known = errors[name] <= _MOST_ERROR
            spread = f"±{100 * errors[name]:.0f}%" if known else "not identified"
            part = "host" if name in HOST else "accelerator"
            lines.append(f"{name:<{width}}  {value:>10.4g}  {spread:<14}  {part}")
        if self.start and max(errors.values()) > _MOST_ERROR:
            lines.append(f"what is not identified is near {self.start}")
        lines += [
            f"{name} = {value}: {source}" for name, (value, source) in self.sources.items() if value
        ]
        lines += [
            f"{a} and {b}: only together known (correlation {rho:+.2f})"
            for a, b, rho in self.correlated()
        ]
        for log in self.logs:
            lines.append(f"{log.name}: {log.steps:,} steps, errors of {log.error_percent:.1f}%")
        if self.runs:
            lines += ["", "errors of the fitted runs in %, simulated against measured"]
        if not self.hull.vertices:
            lines.append("not known: the batch states of the fit; log the usage of the KV cache")
        name_width = max((len(run.name) for run in self.runs), default=0)
        for run in self.runs:
            shown = "  ".join(f"{name} {value:+.1f}" for name, value in run.errors_percent.items())
            lines.append(f"{run.name:<{name_width}}  {shown}")
        lines += [f"not fitted: {reason}" for reason in self.left_out]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain values; `instance` is a group for configuration files."""
        facts = dataclasses.asdict(self.server)
        return {
            "kind": _KIND,
            "version": _VERSION,
            "server": {name: value for name, value in facts.items() if value is not None},
            "instance": self.group.to_dict(),
            "async_scheduling": self.async_scheduling,
            "turnaround_s": self.turnaround_s,
            "coefficients": dict(self.coefficients),
            "covariance_of_logs": [list(row) for row in self.covariance],
            "hull": [list(vertex) for vertex in self.hull.vertices],
            "runs": [dataclasses.asdict(run) for run in self.runs],
            "logs": [dataclasses.asdict(log) for log in self.logs],
            "left_out": list(self.left_out),
            "choices": [dataclasses.asdict(choice) for choice in self.choices],
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "sources": {name: list(pair) for name, pair in self.sources.items()},
            "start": self.start,
            "warms": self.warms,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Profile:
        """The profile of a mapping; ConfigError if it is none."""
        if document.get("kind") != _KIND or document.get("version") != _VERSION:
            allowed = f"must be a file of spillway calibrate ({_KIND}, version {_VERSION})"
            raise config_error([("kind", str(document.get("kind")), allowed)])
        try:
            profile = cls(
                server=ServerFacts(**document["server"]),
                latency=_fitted(instance.InstanceGroup.from_dict(document["instance"])),
                async_scheduling=document["async_scheduling"],
                turnaround_s=document["turnaround_s"],
                covariance=tuple(tuple(map(float, row)) for row in document["covariance_of_logs"]),
                hull=Hull(tuple((float(x), float(y)) for x, y in document["hull"])),
                runs=tuple(FittedRun(**run) for run in document["runs"]),
                logs=tuple(FittedLog(**log) for log in document.get("logs", ())),
                left_out=tuple(document["left_out"]),
                choices=tuple(Choice(**choice) for choice in document["choices"]),
                verdict=Verdict.from_dict(found) if (found := document.get("verdict")) else None,
                sources={
                    str(name): (int(value), str(source))
                    for name, (value, source) in document.get("sources", {}).items()
                },
                start=str(document.get("start", "")),
                warms=int(document.get("warms", 0)),
            )
        except ConfigError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            allowed = "is missing or malformed; calibrate again"
            raise config_error([("server profile", str(error), allowed)]) from None
        size = len(profile.coefficients)
        rows = profile.covariance
        if len(rows) != size or any(len(row) != size for row in rows):
            shape = " + ".join(str(len(row)) for row in rows)
            allowed = f"must be {size} rows of {size} numbers"
            raise config_error([("covariance_of_logs", shape, allowed)])
        for name, value in profile.coefficients.items():
            if not (value > 0 and math.isfinite(value)):
                raise config_error([(f"coefficients.{name}", str(value), "must be > 0")])
        try:
            profile.text()
        except (TypeError, ValueError, AttributeError) as error:
            allowed = "holds other values than numbers; calibrate again"
            raise config_error([("server profile", str(error), allowed)]) from None
        return profile

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a YAML file, which `Profile.load` reads."""
        with replacing(Path(path)) as temporary:
            temporary.write_text(to_yaml(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Reads a file of `save` or `spillway calibrate`."""
        return cls.from_dict(read_settings(Path(path)))


def _fitted(group: instance.InstanceGroup) -> instance.Roofline | instance.StepTable:
    if not isinstance(group.latency, instance.Roofline | instance.StepTable):
        raise ValueError(f"instance.latency: {group.latency.kind}")
    return group.latency
