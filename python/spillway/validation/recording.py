"""Whether a configuration gives what a production system recorded, within stated tolerances.

The recorded requests go through the configuration. Figures of both are compared, and so is each
coefficient of the step time: the value that explains the recorded latencies best, if it alone were
off. All comparisons together raise a false alarm in at most 5% of recordings; see
`errors_of_runs` for what that takes into account.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway import loading
from spillway.config import acceptance, formatting
from spillway.config.classes import config_error
from spillway.config.files import fingerprint, instances, read_settings
from spillway.config.progress import reporting
from spillway.data.recording import Recording
from spillway.simulate import simulate
from spillway.validation import replayed
from spillway.validation.coefficients import coefficients, is_named
from spillway.validation.comparison_of_runs import DEVIATION, Comparison, Difference, run_of
from spillway.validation.errors_of_runs import LEAST_REQUESTS
from spillway.validation.judgments import (
    NOT_IDENTIFIED,
    NOT_MET,
    UNDECIDED,
    Judgment,
    error_of,
    identified,
    judged,
    overall,
    row_of,
)
from spillway.validation.workers import with_workers

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from spillway._core.cluster import Simulation
    from spillway.config.progress import Progress
    from spillway.data.arrays import Booleans
    from spillway.validation.comparison_of_runs import Run

__all__ = ["TOLERANCES", "Judgment", "Report", "validate"]

TOLERANCES: Mapping[str, float] = {
    "p50_ttft_ms": 0.10,
    "p90_ttft_ms": 0.15,
    "p50_tpot_ms": 0.05,
    "p90_tpot_ms": 0.075,
    "cache_hit_rate": 0.05,
    "shed": 0.02,
    "requests_per_min": 0.05,
    "coefficients": 0.05,
}
"""Errors that are accepted: relative, of `cache_hit_rate` and `shed` differences of shares."""

_FALSE_ALARMS = 0.05  # of a recording, all comparisons together
_WARM_UP = 0.1  # of the time in which requests are sent
_SEEDS = 5
_LEAST_SEEDS = 2
_MOST_SEEDS = 100
_MOST_SEED = 2**63


@dataclass(frozen=True)
class Report:
    """The verdict of a recording on a configuration.

    Attributes
    ----------
    verdict : str
        `not met`: a figure or a coefficient is off by more than its tolerance. `met`: none is, and
        the recording would have shown it. `undecided`: the recording does not decide.
    date : str
        Day of the verdict, YYYY-MM-DD.
    figures, coefficients : tuple of Judgment
    source, sha256 : str
        The recording, and its digest.
    requests, not_served, compared : int
        Number of recorded requests, those that were not served, and those after the warm-up.
    warm_up_s : float
        Requests that were sent before are replayed, and not compared.
    seeds : tuple of int
        Those of the simulated runs.
    configuration : str
        Fingerprint of the configuration.
    servers : tuple of str
        Fingerprints of the judged instances.
    unjudged : tuple of str
        Coefficients that need not be identified.
    notes : tuple of str
        What was left out, assumed or replaced.

    """

    verdict: str
    date: str
    figures: tuple[Judgment, ...]
    coefficients: tuple[Judgment, ...]
    source: str
    sha256: str
    requests: int
    not_served: int
    compared: int
    warm_up_s: float
    seeds: tuple[int, ...]
    configuration: str
    servers: tuple[str, ...]
    unjudged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def reason(self) -> str:
        """The errors beyond their tolerance, or what is not decided.

        Of several coefficients, the one that alone would explain most.
        """
        wanted = {NOT_MET: (NOT_MET,), UNDECIDED: (UNDECIDED, NOT_IDENTIFIED)}
        concerned = [
            judgment
            for judgment in (*self.figures, *self.coefficients)
            if judgment.verdict in wanted.get(self.verdict, ())
            and judgment.name not in self.unjudged
        ]
        if self.verdict != NOT_MET:
            return ", ".join(judgment.name for judgment in concerned)
        of_steps = [judgment for judgment in concerned if judgment.explains is not None]
        if of_steps:
            likely = max(of_steps, key=lambda judgment: judgment.explains or 0.0)
            concerned = [of for of in concerned if of.explains is None or of is likely]
        return ", ".join(f"{judgment.name} {error_of(judgment)}" for judgment in concerned)

    def text(self) -> str:
        """The verdict in lines."""
        digest = f" ({self.sha256[:12]})" if self.sha256 else ""
        count = f"{self.requests:,} requests, {self.not_served:,} not served"
        compared = f"{self.compared:,} requests, sent from {self.warm_up_s:.4g} s on"
        lines = [
            f"recording {self.source}{digest}: {count}",
            f"configuration {self.configuration[:12]}, {len(self.seeds)} seeds",
            f"compared: {compared}",
            "",
            formatting.table([
                ("figure", "recorded", "simulated", "error", "±", "tolerance", "verdict"),
                *map(row_of, self.figures),
            ]),
        ]  # fmt: skip
        if self.coefficients:
            head = ("step time", "supported", "configured", "error", "±", "tolerance", "explains",
                    "verdict")  # fmt: skip
            rows = [row_of(judgment, is_coefficient=True) for judgment in self.coefficients]
            lines += [
                "",
                formatting.table([head, *rows]),
                "supported: what explains the recording best, if this coefficient alone were off",
            ]
        reasons: dict[str, list[str]] = {}
        for judgment in (*self.figures, *self.coefficients):
            if judgment.reason and judgment.verdict != NOT_MET:
                reasons.setdefault(f"{judgment.verdict}: {judgment.reason}", []).append(
                    judgment.name
                )
        lines += ["", *(f"{', '.join(names)}: {text}" for text, names in reasons.items())]
        lines += [f"note: {note}" for note in self.notes]
        lines += ["", f"verdict: {self.verdict}{f' ({self.reason})' if self.reason else ''}"]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""

        def plain(judgment: Judgment) -> dict[str, Any]:
            values = vars(judgment)
            return {key: values[key] for key in values if key != "name"}

        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "date": self.date,
            "recording": {
                "source": self.source,
                "sha256": self.sha256,
                "requests": self.requests,
                "not_served": self.not_served,
                "compared": self.compared,
                "warm_up_s": self.warm_up_s,
            },
            "configuration": self.configuration,
            "servers": list(self.servers),
            "seeds": list(self.seeds),
            "figures": {judgment.name: plain(judgment) for judgment in self.figures},
            "coefficients": {judgment.name: plain(judgment) for judgment in self.coefficients},
            "unjudged": list(self.unjudged),
            "notes": list(self.notes),
        }

    def store(self) -> list[Path]:
        """Writes the verdict beside each server, or beside the configuration that states it.

        Simulations with such a server say so in their provenance, and where the verdict is
        negative, in the notes of their results. Returns the written files; none if the
        configuration is not a file.
        """
        entries: dict[Path, list[dict[str, Any]]] = {}
        for server, file in zip(self.servers, self.files, strict=False):
            entries.setdefault(file, []).append({
                "verdict": self.verdict,
                "date": self.date,
                "server": server,
                "configuration": self.configuration,
                "reason": self.reason,
                "recording": self.to_dict()["recording"],
                "figures": {
                    judgment.name: {"error": judgment.error, "verdict": judgment.verdict}
                    for judgment in (*self.figures, *self.coefficients)
                },
            })  # fmt: skip
        for file, found in entries.items():
            acceptance.write(file, found)
        return list(entries)


def validate(
    configuration: loading.Configuration,
    recording: Recording | str | os.PathLike[str],
    *,
    workers: str | os.PathLike[str] | None = None,
    requests: str | Path | None = None,
    tolerances: Mapping[str, float] | None = None,
    unjudged: Sequence[str] = (),
    warm_up_s: float | None = None,
    seeds: int = _SEEDS,
    seed: int = 0,
    allow_mismatch: bool = False,
    progress: Progress = False,
    **reading: Any,
) -> Report:
    """Judges a configuration by what a production system recorded.

    Parameters
    ----------
    configuration : Simulation or path
        The configuration; its workload is replaced by the recorded requests. Of the workload,
        only the class of service of each tenant remains.
    recording : Recording or path
        One run of measured requests (see `spillway.read`), or a record of `spillway serve` or of a
        session, whose run is what was recorded.
    workers : path, optional
        CSV with the columns `time_s` (since the first recorded request), `group` (position in
        `instances`) and `ready`: the instances in service over time.
    requests : path, optional
        The same requests as a trace, for what a recording does not hold: the hashes of prompts and
        the classes of service.
    tolerances : mapping, optional
        Other accepted errors than `TOLERANCES`, each > 0.
    unjudged : sequence of str
        Coefficients of the step time, e.g. `prefill_context_us`, that need not be identified for
        the verdict `met`.
    warm_up_s : float, optional
        Requests that were sent before are replayed, and not compared; by default a tenth of the
        time in which requests were sent.
    seeds : int
        Simulated runs, 2 to 100.
    seed : int
        Seed of the run of a record, >= 0; the simulated runs have the following ones.
    allow_mismatch : bool
        Whether to use a recording whose tool reports other figures than its requests give.
    progress : bool or function
        As for `simulate`.
    **reading
        How to read the recording: arguments of `spillway.read`.

    Raises
    ------
    ConfigError
        A setting, the file of workers or an argument is invalid.
    TraceError
        The recording cannot be read, is a sample, or is not one run of requests.

    """
    accepted = _tolerances(tolerances)
    _check(warm_up_s, seeds, seed)
    notes: list[str] = []
    file = Path(configuration) if isinstance(configuration, str | Path) else None
    given = (
        loading.as_simulation(configuration)
        if file is None
        else loading.from_settings(file, read_trace=False)
    )
    found = _production(
        given, recording, requests, seed, notes, allow_mismatch=allow_mismatch, **reading
    )
    simulation = found.simulation
    if workers is not None:
        simulation = with_workers(simulation, workers, notes)
    simulation = simulation.replace(warm_up_s=0.0).with_({"metrics.streaming": False})
    run = found.recording
    begin_s, rows = _compared(run, warm_up_s)
    places = coefficients(simulation)
    skipped = _unjudged(unjudged, list(places))
    numbers = range(seed + 1, seed + 1 + seeds)
    is_enough = int((rows & ~run.failed).sum()) >= LEAST_REQUESTS
    sides = (1 / (1 + DEVIATION), 1 + DEVIATION) if is_enough else ()
    with reporting(progress, "runs") as report:
        total = (1 + len(sides) * len(places)) * seeds
        done = 0

        def runs_of(other: Simulation) -> list[Run]:
            nonlocal done
            runs = [run_of(result, found) for result in simulate(other, seeds=numbers)]
            done += seeds
            if report is not None:
                report(done, total)
            return runs

        comparison = Comparison(found, runs_of(simulation), rows, begin_s)
        deviations = {
            name: comparison.deviation(
                [runs_of(place.times(factor, simulation)) for factor in sides]
            )
            for name, place in places.items()
            if is_enough
        }
    figures = comparison.figures()
    tests = sum(isinstance(of, Difference) for of in figures.values()) + len(deviations)
    level = _FALSE_ALARMS / (2 * tests)
    judgments = tuple(judged(name, accepted[name], of, level) for name, of in figures.items())
    tolerance = accepted["coefficients"]
    short = f"fewer than {LEAST_REQUESTS} served requests are compared"
    of_steps = tuple(
        identified(name, place.value, tolerance, deviations[name], level)
        if is_enough
        else Judgment(name, None, place.value, None, None, tolerance, NOT_IDENTIFIED, short)
        for name, place in places.items()
    )
    return Report(
        verdict=overall(judgments, of_steps, skipped),
        date=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        figures=judgments,
        coefficients=of_steps,
        source=run.source or run.name,
        sha256=run.sha256,
        requests=run.num_requests,
        not_served=int(run.failed.sum()),
        compared=int(rows.sum()),
        warm_up_s=begin_s,
        seeds=tuple(numbers),
        configuration=fingerprint(given),
        servers=tuple(map(acceptance.fingerprint, given.instances)),
        unjudged=skipped,
        notes=tuple(notes),
        files=() if file is None else _files(file, len(given.instances)),
    )


def _compared(run: Recording, warm_up_s: float | None) -> tuple[float, Booleans]:
    """The end of the warm-up, and the requests after it."""
    last_s = float(run.send_s[-1])
    begin_s = _WARM_UP * last_s if warm_up_s is None else warm_up_s
    if begin_s > last_s:
        allowed = f"must be <= {last_s:g} (s), when the last request was sent"
        raise config_error([("warm_up_s", f"{begin_s:g}", allowed)])
    return begin_s, run.send_s >= begin_s


def _unjudged(given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The coefficients that these names mean."""
    for name in given:
        if not any(is_named(name, of) for of in known):
            allowed = f"must be one of {', '.join(known) or 'none: no step time has coefficients'}"
            raise config_error([("unjudged", repr(name), allowed)])
    return tuple(of for of in known if any(is_named(name, of) for name in given))


def _production(
    simulation: Simulation,
    recording: Recording | str | os.PathLike[str],
    requests: str | Path | None,
    seed: int,
    notes: list[str],
    *,
    allow_mismatch: bool,
    **reading: Any,
) -> replayed.Production:
    if not isinstance(recording, Recording):
        path = Path(recording)
        record = replayed.live_record(path)
        if record is not None:
            if requests is not None:
                allowed = "is not for a record, which holds its requests"
                raise config_error([("requests", str(requests), allowed)])
            return replayed.of_record(simulation, record, path, seed)
        recording = replayed.read_recording(path, allow_mismatch=allow_mismatch, **reading)
    return replayed.of_recording(simulation, recording, requests, notes)


def _tolerances(given: Mapping[str, float] | None) -> dict[str, float]:
    violations = []
    for name, value in (given or {}).items():
        if name not in TOLERANCES:
            allowed = f"is no figure; must be one of {', '.join(TOLERANCES)}"
            violations.append((f"tolerances[{name}]", f"{value}", allowed))
        elif not 0 < value <= 1:
            violations.append((f"tolerances[{name}]", f"{value:g}", "must be > 0 and <= 1"))
    if violations:
        raise config_error(violations)
    return {**TOLERANCES, **(given or {})}


def _check(warm_up_s: float | None, seeds: int, seed: int) -> None:
    violations = []
    if warm_up_s is not None and not (warm_up_s >= 0 and math.isfinite(warm_up_s)):
        violations.append(("warm_up_s", f"{warm_up_s:g}", "must be >= 0 (s)"))
    if not _LEAST_SEEDS <= seeds <= _MOST_SEEDS:
        allowed = f"must be >= {_LEAST_SEEDS} and <= {_MOST_SEEDS}"
        violations.append(("seeds", str(seeds), allowed))
    if not 0 <= seed < _MOST_SEED:
        violations.append(("seed", str(seed), "must be >= 0 and < 2**63"))
    if violations:
        raise config_error(violations)


def _files(file: Path, groups: int) -> tuple[Path, ...]:
    """The file of verdicts for each group: beside its server's, or else the configuration's."""
    given = instances(read_settings(file, "configuration"))
    own = [
        file.parent / group["server"] if isinstance(group.get("server"), str) else file
        for group in given
    ] or [file] * groups
    return tuple(map(acceptance.file_of, own))
