"""Further columns of traces: read, written, transformed, seen by policies, and figures by them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.runs import flat, simulated

import spillway
from spillway import (
    ConfigError,
    Simulation,
    TraceError,
    UsageError,
    gateway,
    simulate,
    traffic,
    workload,
)

if TYPE_CHECKING:
    from pathlib import Path

USERS = ["ann", "bob", "", "ann", "eve", "bob"]
COLUMNS: dict[str, Any] = {
    "arrival_s": [0, 1, 2, 3, 4, 5],
    "input_tokens": [10, 20, 30, 40, 50, 60],
    "output_tokens": [5, 6, 7, 8, 9, 10],
}
ATTRIBUTES = {"user": USERS, "region": ["eu", "us"] * 3}
SEEN: dict[int, dict[str, str]] = {}


class Sees:
    """Admits all but one user."""

    def decide(self, request: Any, view: Any) -> bool:  # noqa: ARG002
        SEEN[request.id] = request.attributes
        return bool(request.attributes.get("user") != "eve")


SEES: Any = Sees


def trace(**changes: Any) -> workload.Trace:
    return spillway.trace(**{**COLUMNS, "attributes": ATTRIBUTES, **changes})


def users(of: workload.Trace) -> list[str]:
    result = simulated(workload=of, instances=flat())
    column: list[str] = result.requests["attribute.user"].tolist()
    return column


def test_results_have_the_columns_of_the_trace() -> None:
    result = simulated(workload=trace(), instances=flat())
    assert list(result.requests)[-2:] == ["attribute.user", "attribute.region"]
    assert result.requests["attribute.user"].tolist() == USERS
    assert result.requests["attribute.region"].tolist() == ["eu", "us"] * 3
    without = simulated(workload=trace(attributes=None), instances=flat())
    assert "attribute.user" not in without.requests
    assert without.digest == result.digest  # no request fares differently
    assert without.simulation != result.simulation
    assert len(result.requests) == len(list(result.requests))


def test_tables_and_saved_results_have_them(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    result = simulated(workload=trace(), instances=flat())
    assert result.requests.to_frame()["attribute.user"].tolist() == USERS
    assert result.requests.to_arrow()["attribute.user"].to_pylist() == USERS
    path = tmp_path / "result.npz"
    result.save(path)
    again = spillway.Result.load(path)
    assert again.requests["attribute.user"].tolist() == USERS
    assert again.by("attribute.user") == result.by("attribute.user")


def test_files_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    traffic.write(trace(), path)
    assert path.read_text().splitlines()[0].endswith(",attribute.user,attribute.region")
    again = spillway.read_trace(path)
    assert again.sha256 == trace().sha256
    assert pickle.loads(pickle.dumps(again)) == again
    assert users(pickle.loads(pickle.dumps(again))) == USERS
    with pytest.raises(TraceError, match="a trace with attributes cannot be streamed"):
        spillway.read_trace(path, stream=True)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_any_column_of_a_log_may_become_one(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{ending}"
    rows = list(zip(*COLUMNS.values(), USERS, strict=True))
    if ending == "csv":
        lines = ["t,in,out,key", *(",".join(map(str, row)) for row in rows)]
    else:
        lines = [f'{{"t": {t}, "in": {a}, "out": {b}, "key": "{user}"}}' for t, a, b, user in rows]
    path.write_text("\n".join(lines) + "\n")
    names = {"arrival_s": "t", "input_tokens": "in", "output_tokens": "out"}
    read = spillway.read_trace(path, columns={**names, "attribute.user": "key"}, time_unit="s")
    assert users(read) == USERS


def test_sorted_traces_keep_rows_together(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,attribute.user\n2,1,1,b\n1,1,1,a\n")
    assert users(spillway.read_trace(path, sort=True)) == ["a", "b"]


def test_transforms_carry_them() -> None:
    late = trace().replace(transforms=[workload.Window(start_s=2)])
    assert users(late) == USERS[2:]
    twice = trace().replace(transforms=[workload.Superpose(copies=2)])
    assert sorted(users(twice)) == sorted(USERS * 2)
    again = trace().replace(transforms=[workload.BlockResample(block_s=2)])
    result = simulated(workload=again, instances=flat())
    user_of = dict(zip(COLUMNS["input_tokens"], USERS, strict=True))
    tokens = result.requests["input_tokens"].tolist()
    assert result.requests["attribute.user"].tolist() == [user_of[length] for length in tokens]
    other = trace(attributes={"user": ["zoe"] * 6})
    merged = users(traffic.merged(trace(), other))
    assert merged == [name for user in USERS for name in (user, "zoe")]


def test_policies_see_them() -> None:
    for streaming in (False, True):
        SEEN.clear()
        result = simulated(
            workload=trace(),
            instances=flat(),
            gateway=gateway.Gateway(admission=SEES),
            metrics={"streaming": streaming},
        )
        assert [SEEN[row]["user"] for row in range(6)] == USERS
        assert SEEN[0] == {"user": "ann", "region": "eu"}
        assert result.ledger["completed"] == 5


@pytest.mark.parametrize("limit", [0, 2])
def test_requests_from_outside_have_none(limit: int) -> None:
    one = {"input_tokens": 7, "output_tokens": 5}
    changes = [spillway.Change(at_s=at_s, submit=[one]) for at_s in (0.5, 2.5)]
    SEEN.clear()
    result = simulated(
        workload=trace().replace(max_in_flight=limit),
        instances=flat(),
        gateway=gateway.Gateway(admission=SEES),
        changes=changes,
    )
    user_of = {7: ""} | dict(zip(COLUMNS["input_tokens"], USERS, strict=True))
    expected = [user_of[tokens] for tokens in result.requests["input_tokens"].tolist()]
    assert 7 in result.requests["input_tokens"][1:5]
    assert result.requests["attribute.user"].tolist() == expected
    assert [SEEN[row]["user"] for row in range(8)] == expected


def test_figures_by_a_column_are_those_of_the_same_groups() -> None:
    clients = [
        workload.Client(name="a", tenant="a", slo_class="critical"),
        workload.Client(name="b", tenant="b"),
    ]
    result = simulated(
        workload=workload.Synthetic(clients=clients, requests_per_s=40, num_requests=600),
        slo_classes=[
            workload.SloClass(name="critical", target_ttft_s=0.05),
            workload.SloClass(name="standard"),
        ],
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=6000, refill_tokens_per_s=15000)
        ),
        warm_up_s=2,
        horizon_s=11,
    )
    assert 0 < result.summary()["rejected"] < 300
    for column, table in (("tenant", result.by_tenant()), ("slo_class", result.by_class())):
        found = result.by(column)
        assert set(found) == set(table)
        for name, figures in found.items():
            for figure, value in figures.items():
                expected = table[name][figure]
                if value is None or expected is None:
                    assert value is expected, (name, figure)
                else:
                    assert value == pytest.approx(expected, rel=1e-9), (name, figure)
    assert "p99_ttft_ms" in repr(result.by("tenant")).replace(" ", "_")
    by_instance = result.by("instance")
    assert (
        sum(figures["offered"] for figures in by_instance.values()) == (result.summary()["offered"])
    )


def test_columns_without_groups_are_refused() -> None:
    result = simulated(workload=trace(), instances=flat())
    with pytest.raises(UsageError, match="column = 'user': must be one of request_id, outcome"):
        result.by("user")
    with pytest.raises(UsageError, match="column = 'ttft_s': has fractions"):
        result.by("ttft_s")
    assert result.by("attribute.user")[""]["offered"] == 1
    assert result.by("attribute.user")["ann"]["total_output_tokens"] == 13


def test_invalid_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"attributes\.user = 1 values: must be as long as"):
        trace(attributes={"user": ["a"]})
    with pytest.raises(ConfigError, match="attributes = ''"):
        trace(attributes={"": USERS})
    with pytest.raises(TypeError, match=r"attributes\.user\[0\] must be a str"):
        trace(attributes={"user": [1] * 6})


def test_limits_and_figures_of_a_model_of_the_log() -> None:
    """What a log calls its model can be looked at beside its tenants."""
    rng = np.random.default_rng(0)
    models = rng.choice(["large", "small"], 300)
    many = spillway.trace(
        arrival_s=np.arange(300) * 0.02,
        input_tokens=np.where(models == "large", 2000, 100),
        output_tokens=np.full(300, 20),
        attributes={"model": models.tolist()},
    )
    result = simulate(Simulation(workload=many))
    found = result.by("attribute.model")
    large, small = (float(found[name]["mean_ttft_ms"] or 0) for name in ("large", "small"))
    assert large > small > 0


# --- models that requests name --------------------------------------------------------------------

MODELS = ["large", "", "small", "large", "", "small"]


def named(of: workload.Trace) -> list[str]:
    column: list[str] = simulated(workload=of, instances=flat()).requests["model"].tolist()
    return column


def test_files_transforms_and_results_keep_models(tmp_path: Path) -> None:
    whole = trace(model=MODELS, attributes=None)
    assert named(whole) == MODELS
    assert whole.sha256 != trace(attributes=None).sha256
    assert trace(model=[""] * 6).sha256 == trace().sha256  # of no model, which is not stated
    assert "model" not in simulated(workload=trace(), instances=flat()).requests
    path = tmp_path / "trace.csv"
    traffic.write(whole, path)
    assert path.read_text().splitlines()[0].endswith(",model")
    read = spillway.read_trace(path)
    assert read.sha256 == whole.sha256
    assert pickle.loads(pickle.dumps(read)) == read
    assert named(pickle.loads(pickle.dumps(read))) == MODELS
    with pytest.raises(TraceError, match="a trace with models cannot be streamed"):
        spillway.read_trace(path, stream=True)
    assert named(whole.replace(transforms=[workload.Window(start_s=2)])) == MODELS[2:]
    twice = whole.replace(transforms=[workload.Superpose(copies=2)])
    assert sorted(named(twice)) == sorted(MODELS * 2)
    again = whole.replace(transforms=[workload.BlockResample(block_s=2)])
    model_of = dict(zip(COLUMNS["input_tokens"], MODELS, strict=True))
    result = simulated(workload=again, instances=flat())
    tokens = result.requests["input_tokens"].tolist()
    assert result.requests["model"].tolist() == [model_of[length] for length in tokens]
    merged = named(traffic.merged(whole, trace(model="third"), trace()))
    assert merged == [name for model in MODELS for name in (model, "third", "")]
    saved = tmp_path / "result.npz"
    result.save(saved)
    loaded = spillway.Result.load(saved)
    assert loaded.requests["model"].tolist() == result.requests["model"].tolist()
    assert loaded.by("model") == result.by("model")
    assert loaded.digest == result.digest


def test_tables_have_models() -> None:
    pytest.importorskip("pandas")
    result = simulated(workload=trace(model=MODELS), instances=flat())
    assert result.requests.to_frame()["model"].tolist() == MODELS
    assert result.requests.to_arrow()["model"].to_pylist() == MODELS


@pytest.mark.parametrize("limit", [0, 2])
def test_requests_from_outside_name_models(limit: int) -> None:
    one = {"input_tokens": 7, "output_tokens": 5}
    changes = [
        spillway.Change(at_s=0.5, submit=[{**one, "model": "third"}]),
        spillway.Change(at_s=2.5, submit=[one]),
    ]
    for of, expected in ((MODELS, {*MODELS, "third"}), (None, {"", "third"})):
        result = simulated(
            workload=trace(model=of, attributes=None).replace(max_in_flight=limit),
            instances=flat(),
            changes=changes,
        )
        columns = result.requests
        outside = columns["input_tokens"] == 7
        assert columns["model"][outside].tolist() == ["third", ""]
        model_of = dict(zip(COLUMNS["input_tokens"], of or [""] * 6, strict=True))
        own = columns["input_tokens"][~outside].tolist()
        assert columns["model"][~outside].tolist() == [model_of[tokens] for tokens in own]
        assert set(columns["model"]) == expected


def test_a_column_of_a_log_may_be_the_model(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = zip(*COLUMNS.values(), MODELS, strict=True)
    lines = [f'{{"t": {t}, "in": {a}, "out": {b}, "m": "{name}"}}' for t, a, b, name in rows]
    path.write_text("\n".join(reversed(lines)) + "\n")
    names = {"arrival_s": "t", "input_tokens": "in", "output_tokens": "out", "model": "m"}
    assert named(spillway.read_trace(path, columns=names, time_unit="s", sort=True)) == MODELS


def test_invalid_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="model = 1 values: must be as long as"):
        trace(model=["a"])
    with pytest.raises(TypeError, match=r"model\[0\] must be a str"):
        trace(model=[1] * 6)


def test_fits_say_which_columns_they_leave_out() -> None:
    pytest.importorskip("scipy")
    rng = np.random.default_rng(0)
    of = spillway.trace(
        arrival_s=np.cumsum(rng.exponential(0.1, 120)),
        input_tokens=rng.integers(1, 300, 120),
        output_tokens=rng.integers(1, 200, 120),
        max_tokens=[0, 400] * 60,
        model=["a", "b"] * 60,
        attributes={"user": ["x"] * 120},
    )
    (note,) = (text for text in traffic.fit(of, resamples=199).notes if "generated" in text)
    assert note.startswith("generated requests have no model, max_tokens, attribute.user:")
