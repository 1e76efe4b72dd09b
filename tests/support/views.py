"""Every view of a result, and of the simulation behind it: what a user can print, ask, write, draw.

A view may refuse only where its documentation says so; anything else is a defect.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import pickle
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from support.settings import CLASSES

from spillway import (
    Result,
    Results,
    Simulation,
    UsageError,
    cli,
    dump,
    fingerprint,
    load,
    profiles,
    simulate,
)
from spillway.checking import check
from spillway.report import plots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.figure import Figure

COUNTER_VERSIONS = ("dynamo_1_2", "dynamo_1_3", "dynamo_dev_b", "dynamo_dev_c")


@dataclass(frozen=True)
class Failure:
    """A view that failed, or that answered where it must refuse."""

    view: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.view}: {type(self.error).__name__}: {self.error}"

    @property
    def cause(self) -> str:
        """The same for every failure at the same place: view, error and the innermost function."""
        frames = traceback.extract_tb(self.error.__traceback__)
        inside = [frame for frame in frames if "/spillway/" in frame.filename] or frames
        place = f"{Path(inside[-1].filename).name}:{inside[-1].name}" if inside else "?"
        words = re.sub(r"'[^']*'|[-+]?\b\d[\d.e+-]*", "#", str(self.error).split("\n")[0])
        return f"{self.view}: {type(self.error).__name__} in {place}: {words:.100}"


class Looking:
    """Looks at one view after the other, and goes on when one fails."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    @contextlib.contextmanager
    def at(self, view: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failures.append(Failure(view, error))

    def refused(
        self, view: str, action: Callable[[], object], kind: type[Exception], why: str
    ) -> None:
        """A view that must refuse, with a reason in which `why` occurs."""
        with self.at(view):
            try:
                action()
            except kind as error:
                if why not in str(error):
                    raise AssertionError(f"refused for another reason: {error}") from error
            else:
                raise AssertionError(f"should be refused: {why}")


def failed_views(
    result: Result, folder: Path, *, draws: bool = False, configures: bool = True
) -> list[Failure]:
    """Looks at every view of a result, with `draws` at its plots too.

    Without `configures` not at configuration files of its simulation.
    """
    look = Looking()
    _simulation(look, result.simulation)
    if configures:
        _configurations(look, result.simulation, folder)
    _figures(look, result)
    _files(look, result, folder)
    _logs(look, result)
    if result.has_requests:
        _rows(look, result)
        _afterthoughts(look, result)
    else:
        for name, ask in (
            ("requests", lambda: result.requests),
            ("why", lambda: result.why("0")),
            ("admission_regret", result.admission_regret),
            ("admission_by_group_age", lambda: result.admission_by_group_age(1)),
            ("recovery", lambda: result.recovery(1 + result.simulation.warm_up_s, 1e6)),
        ):
            look.refused(name, ask, UsageError, "not kept")
    if draws:
        _drawings(look, result)
    return look.failures


def _simulation(look: Looking, simulation: Simulation) -> None:
    """Every written form and every question of a simulation."""
    with look.at("repr"):
        assert eval(repr(simulation), {"__builtins__": {}}, CLASSES) == simulation
    with look.at("dict"):
        written = simulation.to_dict()
        assert Simulation.from_dict(json.loads(json.dumps(written, allow_nan=False))) == simulation
    with look.at("replace"):
        assert simulation.replace() == simulation == simulation.with_({})
    with look.at("pickle"):
        again = pickle.loads(pickle.dumps(simulation))
        assert again == simulation
        assert hash(again) == hash(simulation)
        assert fingerprint(again) == fingerprint(simulation)
    with look.at("profile"):
        assert profiles.name_of(simulation) in (*profiles.NAMES, "custom")


def _configurations(look: Looking, simulation: Simulation, folder: Path) -> None:
    """The configuration files, and what `spillway check` says of them."""
    for suffix in ("yaml", "json"):
        path = folder / f"simulation.{suffix}"
        with look.at(f"dump and load {suffix}"):
            dump(simulation, path)
            assert load(path) == simulation
    with look.at("spillway check"):
        is_refused = any(finding.is_refused for finding in check(path))
        assert _command("check", path) == (1 if is_refused else 0)


def _command(*arguments: object) -> int:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        status = cli.main([str(argument) for argument in arguments])
    assert status in (0, 1), err.getvalue()
    return status


def _logs(look: Looking, result: Result) -> None:
    metrics = result.simulation.metrics
    if metrics.traced_candidates:
        with look.at("decisions"):
            assert repr(result.decisions)
            assert result.decisions.of(0) is None or result.decisions.of(0)["row"] == 0
    else:
        look.refused("decisions", lambda: result.decisions, UsageError, "traced_candidates")
    if metrics.timeline_step_s is not None:
        with look.at("timeline"):
            timeline = result.timeline
            assert repr(timeline)
            for tenant in timeline.tenants:
                assert len(timeline.of(tenant)["queued"]) == len(timeline["time_s"])
    else:
        look.refused("timeline", lambda: result.timeline, UsageError, "timeline_step_s")


def _figures(look: Looking, result: Result) -> None:
    for name in ("summary", "by_class", "by_tenant"):
        with look.at(name):
            assert repr(getattr(result, name)())
    with look.at("notes"):
        assert all(note == note.strip() and note for note in result.notes())
    with look.at("remedies"):
        for finding in result.findings():
            for remedy in finding.remedies:
                assert result.simulation.with_(remedy) != result.simulation
    with look.at("print"):
        assert str(result) == repr(result)
    with look.at("print several"):
        assert repr(Results([result, result]))
    with look.at("HTML"):
        assert result._repr_html_()
        assert Results([result, result])._repr_html_()
        assert result.simulation._repr_html_()
    with look.at("to_dict"):
        json.dumps(result.to_dict(), allow_nan=False)
    with look.at("lists"):
        json.dumps([result.instances, result.ranks, result.ingresses], allow_nan=False)
        assert result.steps >= 0
        assert result.events >= 0
        assert len(result.fingerprint) == 64
        assert result.profile in (*profiles.NAMES, "custom")
    with look.at("control"):
        assert repr(result.control)
        for action in result.control.actions:
            assert result.control.count(action) >= 0
    for version in COUNTER_VERSIONS:
        with look.at(f"counters {version}"):
            assert all(value >= 0 for value in result.counters(version).values())


def _files(look: Looking, result: Result, folder: Path) -> None:
    with look.at("pickle of the result"):
        assert pickle.loads(pickle.dumps(result)).digest == result.digest
    with look.at("write"):
        result.write(folder / "written")
        written = json.loads((folder / "written" / "summary.json").read_text(encoding="utf-8"))
        assert written == json.loads(json.dumps(result.to_dict()))
        assert (folder / "written" / "requests.csv").exists() is result.has_requests
        for path in (folder / "written").iterdir():
            path.unlink()
    path = folder / "result.npz"
    if not result.has_requests:
        look.refused("save", lambda: result.save(path), UsageError, "not kept")
        return
    with look.at("save and load"):
        result.save(path)
        loaded = Result.load(path)
        assert loaded.digest == result.digest
        assert loaded.simulation == result.simulation
        assert loaded.to_dict() == result.to_dict()
        assert repr(loaded) == repr(result)
        assert loaded.notes() == result.notes()


def _rows(look: Looking, result: Result) -> None:
    with look.at("requests"):
        requests = result.requests
        assert repr(requests)
        assert len(requests.to_frame()) == requests.num_rows
        assert requests.num_rows == result.ledger["logical_requests"]


def _afterthoughts(look: Looking, result: Result) -> None:
    """Properties of a result that are computed on demand."""
    requests, simulation = result.requests, result.simulation
    with look.at("admission_regret"):
        regret = result.admission_regret()
        rejected = int((requests["outcome"] == "rejected").sum())
        assert repr(regret)
        assert regret.summary()["rejected"] == rejected == len(regret["row"])
    with look.at("admission_by_group_age"):
        last_s = float(requests["arrival_s"].max(initial=0))
        ages = result.admission_by_group_age(last_s / 7 + 1e-3, last_s / 3 + 1e-3)
        assert repr(ages)
        assert (ages["new_admitted"] <= ages["new_offered"]).all()
    _ask_why(look, result)
    _ask_for_causes(look, result)
    promising = {
        slo_class.name
        for slo_class in simulation.slo_classes
        if {slo_class.target_ttft_s, slo_class.target_tpot_s, slo_class.target_e2e_s} != {None}
    }
    start_s = simulation.warm_up_s + (last_s - simulation.warm_up_s) / 3
    end_s = start_s + 0.1 * last_s + 1e-6

    def recover() -> object:
        return result.recovery(start_s, end_s, step_s=last_s / 20 + 1e-3)

    if not simulation.warm_up_s < start_s:
        look.refused("recovery", recover, UsageError, "warm_up_s")
    elif not promising & set(requests["slo_class"].tolist()):
        look.refused("recovery", recover, UsageError, "targets")
    else:
        with look.at("recovery"), contextlib.suppress(UsageError):  # too few requests
            assert repr(recover())


def _ask_why(look: Looking, result: Result) -> None:
    requests = result.requests
    examples = {outcome: row for row, outcome in enumerate(requests["outcome"].tolist())}
    for outcome, row in examples.items():
        name = str(requests["request_id"][row])
        with look.at(f"why of a request that is {outcome}"):
            assert outcome in result.why(name)
    look.refused(
        "why of an unknown request",
        lambda: result.why("no such request"),
        KeyError,
        "no such request",
    )


def has_causes(result: Result) -> bool:
    """Whether the latencies of a run are divided into causes."""
    is_causal = result.simulation.metrics.accounting == "clock"
    return result.has_requests and is_causal


def _ask_for_causes(look: Looking, result: Result) -> None:
    if result.simulation.metrics.accounting != "clock":
        look.refused("time_by_cause", result.time_by_cause, UsageError, "accounting = clock")
        return
    with look.at("time_by_cause"):
        causes = result.time_by_cause()
        assert repr(causes)
        assert (causes.ns >= 0).all()
        e2e_ns = np.nan_to_num(result.requests["e2e_s"]) * 1e9
        assert (causes.ns.sum(axis=1) == np.rint(e2e_ns)).all()


def _drawings(look: Looking, result: Result) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    def drawn(name: str, draw: Callable[[], Any]) -> None:
        with look.at(f"plot {name}"):
            _render(draw().figure)
            plt.close("all")

    figures = result.plot
    if result.simulation.metrics.timeline_step_s is None:
        look.refused("plot gateway", figures.gateway, UsageError, "timeline_step_s")
    elif len(result.timeline["time_s"]) < 2:
        look.refused("plot gateway", figures.gateway, ValueError, "nothing to draw")
    else:
        drawn("gateway", figures.gateway)
    drawn("sweep", lambda: plots.sweep({1: result, 2.5: result}, "p99_ttft_ms", "tenant"))
    drawn("sweep log", lambda: plots.sweep({1: result, 20: result}, "completed", log="xy"))
    heat_map = functools.partial(plots.heat_map, {"a": result, "b": [result]}, "p99_ttft_ms")
    if result.summary()["offered"]:
        drawn("heat_map", heat_map)
    else:
        look.refused("plot heat_map", heat_map, ValueError, "nothing to draw")
    asks = {
        "latency_cdf": lambda: figures.latency_cdf("ttft_s"),
        "latency_cdf of offered": lambda: figures.latency_cdf(
            "e2e_s", "tenant", population="offered", log=True
        ),
        "outcomes_over_time": lambda: figures.outcomes_over_time("tenant", bins=7),
        "outcomes_over_time by class": lambda: figures.outcomes_over_time("slo_class"),
        "admission_by_length": lambda: figures.admission_by_length(bins=5, label="a"),
        "admitted_tokens": figures.admitted_tokens,
        "requests": figures.requests,
        "instances": lambda: figures.instances(bins=5),
    }
    if not result.has_requests:
        for name, draw in asks.items():
            look.refused(f"plot {name}", draw, UsageError, "not kept")
        return
    warm_up_s = result.simulation.warm_up_s
    is_empty = not (result.requests["arrival_s"] >= warm_up_s).any()
    has_data = {
        "admitted_tokens": True,
        "requests": len(result.requests["arrival_s"]) > 0,
        "instances": not np.isnan(result.requests["e2e_s"]).all(),
    }
    for name, draw in asks.items():
        if not has_data.get(name, not is_empty):
            look.refused(f"plot {name}", draw, ValueError, "nothing to draw")
        else:
            drawn(name, draw)


def _render(figure: Figure) -> None:
    """To the last glyph: names that the text engine cannot render fail only here."""
    figure.savefig(io.BytesIO(), format="raw", dpi=20)


# --- what must hold of every run ------------------------------------------------------------------


def failed_checks(result: Result) -> list[Failure]:
    """The identities of every run that this run violates."""
    look = Looking()
    simulation, seed = result.simulation, result.seed
    with look.at("books"):
        _check_books(result)
    with look.at("the run repeated"):
        assert simulate(simulation, seed).digest == result.digest
    with look.at("the run made step by step"):
        assert simulate(simulation, seed, reference=True).digest == result.digest
    with look.at("the run with or without its requests"):
        streams = not simulation.metrics.streaming
        changes = {"metrics.streaming": streams, "metrics.traced_candidates": 0}
        assert simulate(simulation.with_(changes), seed).ledger == result.ledger
    return look.failures


def _check_books(result: Result) -> None:
    """The identities of the books, counted again from the result."""
    books = result.ledger
    rejected = sum(books["rejected"].values())
    at_worker = sum(books["worker_rejected"].values())
    by_router = sum(books.get("router_rejected", {}).values())
    by_router += sum(books.get("handoff_rejected", {}).values())
    in_flight = books["evicted_in_flight"] + books["cancelled_in_flight"]
    withdrawn = books["evicted"] + books["cancelled"]
    failed_before = books.get("failed_at_admission", 0)
    failed_waiting = books.get("failed_in_queue", 0)
    at_door = books["at_admission"] + failed_before
    assert books["attempts"] == at_door + books["admitted"] + rejected
    assert books["admitted"] == (
        books["queued"] + books["dispatched"] + books["expired"] + withdrawn - in_flight
        + failed_waiting
    )  # fmt: skip
    assert books["dispatched"] == (
        books["in_transit"] + books["running"] + books["completed"] + books["failed"]
        + in_flight + at_worker + by_router - failed_before - failed_waiting
    )  # fmt: skip
    assert books["logical_requests"] <= books["attempts"]
    assert sum(instance["completed"] for instance in result.instances) == books["completed"]
    for figures in (result.summary(), *result.by_class().values(), *result.by_tenant().values()):
        assert all(math.isfinite(value) for value in figures.values() if value is not None)
    if result.has_requests:
        requests = result.requests
        assert (requests["outcome"] == "completed").sum() == books["completed"]
        assert requests["attempts"].sum() == books["attempts"]
        for name in ("ttft_s", "e2e_s", "queue_s", "scheduling_delay_s", "tpot_s", "itl_mean_s"):
            known = requests[name][~np.isnan(requests[name])]
            assert (known >= 0).all(), name
            assert np.isfinite(known).all(), name


def shed_share(result: Result) -> float:
    """Share of the attempts that the gateway, the workers or timeouts reject."""
    books = result.ledger
    lost = books["expired"] + books["evicted"] + books["cancelled"]
    for stage in ("rejected", "worker_rejected", "router_rejected"):
        lost += sum(books.get(stage, {}).values())
    return lost / books["attempts"] if books["attempts"] else 0.0
