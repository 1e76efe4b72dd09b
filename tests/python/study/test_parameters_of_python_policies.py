"""Studies search the parameters of policies that are written in Python."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from spillway import ConfigError, Simulation, Space, Study, gateway, instance, policies, simulate
from spillway.study.space import Choice


@dataclass
class AtMost(policies.Admission):
    """Rejects while many are in flight."""

    in_flight: int = field(default=8, metadata={"search": (1, 64), "log": True, "unit": "requests"})
    share: float = 1
    strict: bool = False
    mode: str = "all"

    def decide(self, _request: policies.Request, view: policies.View) -> bool:
        return int(view.in_flight.sum()) < self.in_flight * self.share


def busiest(limit: int = 3, shares: Any = (1, 2)) -> AtMost:
    return AtMost(in_flight=limit * shares[0])


LOADED = Simulation(
    instances=[{"count": 2, "latency": instance.Linear(beta0_us=7000, beta_decode_us=3)}],
    workload={"kind": "synthetic", "requests_per_s": 60, "num_requests": 150},
    gateway=gateway.Gateway(admission=AtMost),
)
PATH = "gateway.admission[0].parameters"


def completed(simulation: Simulation) -> int:
    return int(simulate(simulation, 1).ledger["completed"])


def test_a_parameter_is_set_by_its_path() -> None:
    fewer = LOADED.with_({f"{PATH}.in_flight": 2})
    assert fewer == LOADED.with_({"gateway.admission": functools.partial(AtMost, in_flight=2)})
    assert completed(fewer) < completed(LOADED)
    changes = {"gateway.admission": [AtMost], f"{PATH}.share": 0.5, f"{PATH}.in_flight": 4}
    both = LOADED.with_(changes)
    assert both.gateway.admission[0].parameters == '{"in_flight": 4, "share": 0.5}'
    more = both.with_({f"{PATH}.in_flight": np.int64(8)})
    assert more.gateway.admission[0].parameters == '{"in_flight": 8, "share": 0.5}'
    assert completed(both) == completed(fewer)


def test_replaced_parameters_are_those_of_the_run() -> None:
    settings = policies.settings(AtMost).replace(parameters='{"in_flight": 2}')
    chosen = LOADED.with_({"gateway.admission": settings})
    assert completed(chosen) == completed(LOADED.with_({f"{PATH}.in_flight": 2}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({f"{PATH}.in_flight": {1}}, "must have parameters that JSON can hold"),
        ({f"{PATH}.in_flight": float("nan")}, "must have parameters that JSON can hold"),
        ({PATH: "[1]", f"{PATH}.in_flight": 1}, r"parameters = '\[1\]': must be a JSON object"),
        ({"gateway.limit[0].parameters.x": 1}, "unknown setting 'parameters'"),
    ],
)
def test_wrong_parameters_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LOADED.with_(changes)


def test_parameters_that_the_class_does_not_have_end_the_run() -> None:
    with pytest.raises(policies.PolicyError, match="AtMost cannot be made") as raised:
        simulate(LOADED.with_({f"{PATH}.in_fligth": 1}))
    assert "in_fligth" in str(raised.value.__cause__)
    with pytest.raises(ConfigError, match="must be a JSON object"):
        simulate(LOADED.with_({PATH: "8"}))


def test_spaces_know_the_fields_of_a_dataclass() -> None:
    space = Space(
        {
            f"{PATH}.in_flight": "auto",
            f"{PATH}.share": (0.1, 1),
            f"{PATH}.strict": "auto",
            f"{PATH}.mode": Choice(["all", "few"]),
        }
    ).bind(LOADED)
    limit, share, strict, mode = space
    assert (limit.kind, limit.low, limit.high) == ("int", 1, 64)
    assert (limit.log, limit.unit) == (True, "requests")
    assert (share.kind, strict.kind, mode.labels) == ("float", "choice", ("all", "few"))
    assert list(space.current().values()) == [8, 1, False, "all"]
    point = space.at([0.5, 0.5, 1, 1])
    assert space.apply(point).gateway.admission[0].parameters == (
        '{"in_flight": 8, "mode": "few", "share": 0.55, "strict": true}'
    )


def test_spaces_know_the_arguments_of_a_function() -> None:
    around = LOADED.with_({"gateway.admission": functools.partial(busiest, limit=4)})
    (limit,) = Space({f"{PATH}.limit": (1, 9)}).bind(around)
    assert (limit.kind, limit.low, limit.high) == ("int", 1, 9)
    assert Space({f"{PATH}.limit": (1, 9)}).bind(around).current() == {f"{PATH}.limit": 4}


@pytest.mark.parametrize(
    ("path", "dimension", "message"),
    [
        ("in_fligth", (1, 2), "unknown parameter 'in_fligth'; one of in_flight, share, strict"),
        ("share", "auto", "has no default search range"),
        ("mode", (1, 2), "not a number; give it choices"),
        ("in_flight", (0.5, 2), "low, high and step must be whole numbers"),
    ],
)
def test_wrong_spaces_are_refused(path: str, dimension: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Space({f"{PATH}.{path}": dimension}).bind(LOADED)


def test_code_must_be_imported_before_it_is_searched() -> None:
    stored = Simulation.from_dict(LOADED.to_dict())
    with pytest.raises(ConfigError, match="must be imported first"):
        Space({f"{PATH}.in_flight": "auto"}).bind(stored)
    assert len(Space({f"{PATH}.in_flight": "auto"}).bind(policies.load(stored))) == 1


def test_a_study_searches_them() -> None:
    space = {f"{PATH}.in_flight": "auto"}
    study = Study(LOADED, space, "completed", seeds=1, sampler="random").optimize(8)
    tried = {trial.point[f"{PATH}.in_flight"] for trial in study.records}
    assert len(tried) > 3
    assert study.best == LOADED.with_({f"{PATH}.in_flight": max(tried)})
    assert completed(study.best) > completed(LOADED.with_({f"{PATH}.in_flight": 1}))
