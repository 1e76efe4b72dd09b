"""Every preset in every form, and presets by name in files and in the shell."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import json
import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from support.tools import modules_with

from spillway import (
    ConfigError,
    Simulation,
    _registry,
    cli,
    dump,
    fingerprint,
    gateway,
    instance,
    load,
    loading,
    presets,
    profiles,
    simulate,
    workload,
)
from spillway.presets import by_name, descriptions
from spillway.study.files import read_study, run_sweep
from spillway.study.sweeps import Sweep
from spillway.systems.dynamo import presets as dynamo
from spillway.systems.llm_d import presets as llm_d
from spillway.systems.vllm_on_eks import presets as vllm_on_eks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

each_name = pytest.mark.parametrize("name", presets.names())

_TOOLS = modules_with("PARAMETERS", "presets")
PARAMETERS: dict[str, dict[str, Any]] = {
    name: parameters for tests in _TOOLS for name, parameters in tests.PARAMETERS.items()
}
"""Every parameter with a value that is not its default, as YAML has it."""
OUT_OF_RANGE: list[tuple[str, str, Any]] = [row for tests in _TOOLS for row in tests.OUT_OF_RANGE]
each_with_parameters = pytest.mark.parametrize("name", PARAMETERS)

LOADED = presets.get("noisy-neighbor").apply()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes settings as a configuration file."""

    def write(settings: Any, name: str = "config.yaml") -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


def with_200_requests(simulation: Simulation) -> Simulation:
    clients = simulation.workload.clients
    counts = [200 // len(clients)] * len(clients)
    counts[0] += 200 - sum(counts)
    return simulation.with_(
        {
            "workload.clients": [
                client.replace(num_requests=count, duration_s=None)
                for client, count in zip(clients, counts, strict=True)
            ]
        }
    )


def chosen(*presets: Any, **settings: Any) -> Simulation:
    return loading.from_settings({"presets": list(presets), **settings})


def violation(error: pytest.ExceptionInfo[ConfigError]) -> tuple[str, str, str]:
    (found,) = error.value.violations
    return found  # type: ignore[no-any-return]


# --- every preset ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("noisy-neigbor", "did you mean 'noisy-neighbor'?"),
        ("autoscale_demo", "did you mean 'autoscale-demo'?"),
        ("xyz", f"one of {', '.join(presets.names())}"),
        ("", f"one of {', '.join(presets.names())}"),
    ],
)
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        presets.get(name)
    assert caught.value.violations == (("preset", repr(name), f"unknown preset; {hint}"),)


def test_names() -> None:
    assert len(set(presets.names())) == len(presets.names())
    modules = _registry.modules("presets").values()
    assert len(presets.names()) == sum(len(module.PRESETS) for module in modules)
    of_kind = [presets.names(kind) for kind in presets.KINDS]
    assert all(of_kind)
    assert sorted(itertools.chain(*of_kind)) == sorted(presets.names())
    with pytest.raises(ConfigError) as caught:
        presets.names("gateways")
    assert violation(caught) == (
        "kind",
        "'gateways'",
        "must be one of scenario, gateway, server, scheduler",
    )


@each_name
def test_every_preset_runs_and_loses_no_request(name: str) -> None:
    preset = presets.get(name)
    assert preset.name == name
    result = simulate(with_200_requests(preset.apply(LOADED)), 3)
    ledger = result.ledger
    assert ledger["logical_requests"] == result.requests.num_rows == 200
    outcomes = Counter(result.requests["outcome"].tolist())
    assert outcomes["completed"] == ledger["completed"] > 0
    # The run goes on until the last request has left.
    assert sum(outcomes.values()) == sum(
        [
            ledger["completed"],
            ledger["failed"],
            ledger["cancelled"] + ledger["cancelled_in_flight"],
            ledger["expired"],
            ledger["evicted"] + ledger["evicted_in_flight"],
            sum(ledger["rejected"].values()),
            sum(ledger["worker_rejected"].values()),
        ]
    )


@each_name
def test_every_preset_replaces_its_settings_alone(name: str) -> None:
    preset = presets.get(name)
    after, before = preset.apply(LOADED).to_dict(), LOADED.to_dict()
    assert {key for key in after if after[key] != before[key]} <= {
        path.partition(".")[0].removesuffix("[]") for path in preset.settings
    }
    settings = {**LOADED.to_dict(), "workload": LOADED.workload}
    assert Simulation.from_dict(preset.put_into(settings)) == preset.apply(LOADED)
    if "workload" in preset.settings or "tenants" not in preset.settings:
        assert preset.apply() == Simulation.from_dict(preset.to_dict())


@each_name
def test_every_preset_is_printed_and_described(name: str) -> None:
    preset = presets.get(name)
    assert preset.kind in presets.KINDS
    assert preset.doc.endswith(".")
    assert "  " not in preset.doc
    assert preset.source
    printed = str(preset)
    described = descriptions.describe(f"presets.{name}")
    for shown in (printed, described):
        assert shown.startswith(f"{name} ({preset.kind}")
        assert max(map(len, shown.splitlines())) <= 100
        *_, source, settings = shown.split("\n\n")
        assert " ".join(source.split()) == f"Source: {preset.source}"
        assert yaml.safe_load(settings) == preset.to_dict()
    parameters = inspect.signature(by_name.function_of(name)).parameters
    assert set(parameters) == set(PARAMETERS.get(name, {}))
    for parameter in parameters:
        assert f"\n{parameter}\n    " in described
    line = f"    {name:26}  "
    assert line in presets.table()
    assert line.strip() in presets.table(preset.kind)


@each_name
def test_every_preset_is_saved_and_read(name: str, tmp_path: Path) -> None:
    simulation = presets.get(name).apply(LOADED)
    for path in (tmp_path / "saved.yaml", tmp_path / "saved.json"):
        dump(simulation, path)
        assert "preset" not in path.read_text()
        assert load(path) == simulation


@each_name
def test_every_preset_is_the_same_by_name_and_by_function(
    name: str, write: Callable[[Any], Path]
) -> None:
    made = by_name.function_of(name)
    assert made() == presets.get(name)
    by_file = load(write({"schema": 1, "presets": ["noisy-neighbor", name]}))
    assert by_file == made().apply(LOADED)
    assert fingerprint(by_file) == fingerprint(made().apply(LOADED))


@each_with_parameters
def test_parameters_in_a_file(name: str, write: Callable[[Any], Path]) -> None:
    parameters = PARAMETERS[name]
    made = by_name.function_of(name)
    expected = made(**parameters)
    assert expected == presets.get(name, **parameters)
    for key in parameters:  # each has an effect
        others = {parameter: value for parameter, value in parameters.items() if parameter != key}
        assert made(**others) != expected
    by_file = load(write({"presets": ["noisy-neighbor", {"name": name, **parameters}]}))
    assert by_file == expected.apply(LOADED)
    assert simulate(with_200_requests(by_file)).ledger["logical_requests"] == 200


def test_attributes_are_settings() -> None:
    preset = dynamo.v1_3()
    assert preset.admission == preset.settings["gateway.admission"] == gateway.BusyThreshold()
    assert preset.ingress == preset.settings["instances[].ingress"]
    with pytest.raises(AttributeError, match=r"^'Preset' has no attribute 'signals'$"):
        preset.signals  # noqa: B018
    for again in (pickle.loads(pickle.dumps(preset)), copy.deepcopy(preset), copy.copy(preset)):
        assert again == preset
        assert hash(again) == hash(preset)


def test_a_preset_of_ones_own() -> None:
    preset = presets.Preset(
        name="two-seats",
        kind="server",
        doc="Two.",
        source="here",
        settings={"instances[].max_num_seqs": 2, "router": "round_robin"},
    )
    fleet = Simulation(instances=[{"count": 2}, {"max_num_seqs": 9}])
    after = preset.apply(fleet)
    assert [group.max_num_seqs for group in after.instances] == [2, 2]
    assert after.instances[0].count == 2
    assert preset.to_dict() == {"instances": {"max_num_seqs": 2}, "router": "round_robin"}
    with pytest.raises(ConfigError, match="unknown setting 'rooter'"):
        dataclasses.replace(preset, settings={"rooter": 1}).apply()


# --- the key `presets` ----------------------------------------------------------------------------


def test_presets_are_applied_in_order() -> None:
    names = ("noisy-neighbor", "vllm-on-eks-l4", "vllm-on-eks-post5", "blis-iteration-14")
    expected = Simulation()
    for name in names:
        expected = presets.get(name).apply(expected)
    assert chosen(*names) == expected
    assert isinstance(expected.instances[0].scheduler, instance.PriorityFcfs)
    # The fleet comes last and brings its own scheduler.
    later = chosen("noisy-neighbor", "blis-iteration-14", "vllm-on-eks-l4")
    assert later.instances == (vllm_on_eks.l4().instances,)


def test_the_later_of_two_wins() -> None:
    assert chosen("noisy-neighbor", "baseline") == presets.get("baseline").apply()
    both = chosen("baseline", "vllm-on-eks-pre", "vllm-on-eks-post5")
    assert both == vllm_on_eks.post5().apply(presets.get("baseline").apply())
    # The workload's preset names all tenants, so the bounds of an earlier gateway are gone.
    assert chosen("vllm-on-eks-post5", "baseline").tenants == vllm_on_eks.TENANTS


@pytest.mark.parametrize(
    "entries", ["baseline", {"name": "baseline"}, ["baseline"], [{"name": "baseline"}]]
)
def test_forms(entries: Any) -> None:
    assert loading.from_settings({"presets": entries}) == presets.get("baseline").apply()


def test_no_presets() -> None:
    assert loading.from_settings({"presets": []}) == Simulation()


def test_own_settings_change_those_of_presets() -> None:
    before = chosen("noisy-neighbor", "vllm-on-eks-l4", "vllm-on-eks-post5")
    after = chosen(
        "noisy-neighbor",
        "vllm-on-eks-l4",
        "vllm-on-eks-post5",
        gateway={
            "guard": {"floor": 8},
            "limit": {"kind": "worker_budget", "cap_per_worker": 16},
            "bands": [{"queue": {"timeout_s": 3}}],
            "controller": "static",
        },
        instances={"count": 4},
        tenants=[{"name": "A", "weight": 5}, {"name": "D"}],
        slo_classes={"name": "critical", "weight": 2},
        workload={"clients": [{"name": "B", "requests_per_s": 60}]},
        horizon_s=99,
    )
    assert after == before.with_(
        {
            "gateway.guard.floor": 8,
            "gateway.limit[0].cap_per_worker": 16,
            "gateway.bands[0].queue.timeout_s": 3,
            "gateway.controller": "static",
            "instances[0].count": 4,
            "tenants": [*before.with_({"tenants[A].weight": 5}).tenants, workload.Tenant(name="D")],
            "slo_classes[critical].weight": 2,
            "workload.clients[B].requests_per_s": 60,
            "horizon_s": 99,
        }
    )
    assert after.tenants[0].queue_max == 2


def test_another_kind_takes_the_place_of_a_policy() -> None:
    ours = chosen(
        "noisy-neighbor", "vllm-on-eks-post5", gateway={"limit": {"kind": "fixed"}}
    ).gateway
    assert ours.limit == (gateway.FixedLimit(),)
    assert ours.guard == vllm_on_eks.post5().gateway.guard


def test_each_group_of_the_file_continues_the_only_one_of_the_presets() -> None:
    groups = [{"count": 1}, {"count": 3, "num_kv_blocks": 4800}]
    after = chosen("noisy-neighbor", "vllm-on-eks-l4", "dynamo-dev-b", instances=groups)
    ours = vllm_on_eks.l4().instances.replace(ingress=dynamo.dev_b().ingress)
    assert after.instances == (ours.replace(count=1), ours.replace(count=3, num_kv_blocks=4800))


def test_other_lists_take_the_place_of_those_of_presets() -> None:
    bands = [{"priority": 4}, {"priority": 0, "max_requests": 7}]
    assert chosen("llm-d-flow-control", gateway={"bands": bands}).gateway.bands == tuple(
        gateway.Band(**band) for band in bands
    )
    assert chosen("noisy-neighbor", "vllm-on-eks-post5", tenants=[]).tenants == ()
    # Clients without names.
    clients = [{"tenant": "A"}, {"tenant": "B", "name": "second"}]
    own = chosen("baseline", workload={"clients": clients}).workload
    assert own.clients == tuple(workload.Client(**client) for client in clients)
    with pytest.raises(ConfigError, match=r"tenants\[1\].name = 'A'"):
        chosen("baseline", tenants=[{"name": "A"}, {"name": "A"}])


def test_a_preset_of_latencies_replaces_those_of_a_server() -> None:
    latency = {"kind": "linear", "preset": "llama-3.1-8b-h100-tp1", "beta0_us": 7}
    (ours,) = chosen("vllm-on-eks-l4", instances={"latency": latency}).instances
    assert ours.latency == instance.Linear.preset("llama-3.1-8b-h100-tp1").replace(beta0_us=7)
    assert ours.num_kv_blocks == 2400


def test_settings_that_no_preset_names_have_the_defaults_of_their_class() -> None:
    # The class of this name that a simulation has by default has another priority.
    own = {"slo_classes": [{"name": "standard", "weight": 2}, {"name": "batch"}]}
    assert chosen("vllm-on-eks-l4", **own).slo_classes == (
        workload.SloClass(name="standard", weight=2),
        workload.SloClass(name="batch"),
    )


def test_profile_comes_before_presets() -> None:
    blis_0_6 = profiles.blis_0_6()
    names = ("noisy-neighbor", "blis-iteration-14")
    expected = blis_0_6
    for name in names:
        expected = presets.get(name).apply(expected)
    assert chosen(*names, profile="blis_0_6") == expected
    assert expected.instances[0].completion == "step_start"
    assert expected.instances[0].scheduler.priority == "slo_class"


@pytest.mark.parametrize(
    ("presets", "path", "value", "allowed"),
    [
        (5, "presets", "5", "must be the name of a preset, or a mapping of `name` and parameters"),
        (None, "presets", "None", "must be the name of a preset"),
        ([["baseline"]], "presets[0]", "['baseline']", "must be the name of a preset"),
        (["baseline", {"version": 1}], "presets[1]", "{'version': 1}", "must be the name of"),
        ({"name": 7}, "presets", "7", "must be the name of a preset"),
        ("base-line", "presets", "'base-line'", "unknown preset; did you mean 'baseline'?"),
        (["baseline", "xyz"], "presets[1]", "'xyz'", "unknown preset; one of aibrix, "),
        (
            [{"name": "llm-d-flow-control", "versoin": "2026-05"}],
            "presets[0].versoin",
            "'2026-05'",
            "unknown parameter of llm-d-flow-control; did you mean 'version'?",
        ),
        (
            {"name": "baseline", "rate": 2},
            "presets.rate",
            "2",
            "unknown parameter of baseline, which has no parameters",
        ),
        (
            {"name": "llm-d-flow-control", "version": "2025-01"},
            "presets.version",
            "'2025-01'",
            "must be '2026-05' or '2026-08'",
        ),
        (
            {"name": "vllm-on-eks-post4", "semantics": "faithful"},
            "presets.semantics",
            "'faithful'",
            "must be one of corrected, verbatim",
        ),
    ],
)
def test_invalid_presets(presets: Any, path: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loading.from_settings({"presets": presets})
    found = violation(caught)
    assert found[:2] == (path, value)
    assert found[2].startswith(allowed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "parameter", "value"), OUT_OF_RANGE)
def test_parameters_out_of_range(name: str, parameter: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        presets.get(name, **{parameter: value})
    path, shown, allowed = violation(caught)
    assert path == f"preset.{parameter}"
    assert shown in (repr(value), json.dumps(value))
    assert allowed.startswith("must ")


def test_what_conflicts_with_presets_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"clients\[0\].tenant = 'default': must be one of the ten"
    ):
        chosen("vllm-on-eks-post5")
    with pytest.raises(
        ConfigError, match=r"clients\[0\].tenant = 'default': must be one of the ten"
    ):
        vllm_on_eks.post5().apply()
    with pytest.raises(ConfigError, match=r"gateway\.guard\.flor"):
        chosen("baseline", "vllm-on-eks-post5", gateway={"guard": {"flor": 8}})


def test_schema_knows_the_presets() -> None:
    validator = jsonschema.Draft202012Validator(loading.json_schema())
    for name in presets.names():
        validator.validate({"presets": name})
        validator.validate({"presets": ["baseline", {"name": name, **PARAMETERS.get(name, {})}]})
    for bad in (5, "xyz", [["baseline"]], {"version": 1}, {"name": "baseline", "rate": 2}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({"presets": bad})


# --- the shell and studies ------------------------------------------------------------------------


def test_set_presets(write: Callable[[Any], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = write({"schema": 1, "instances": {"count": 3}, "router": "round_robin"})
    own = load(path)

    def digest_of(*arguments: str) -> str:
        assert cli.main(["check", str(path), *arguments]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()[-1]

    expected = presets.get("baseline").apply(own)
    assert digest_of("--set", "presets=baseline") == fingerprint(expected)[:12]
    # Over the file's own settings, and under the other changes.
    expected = llm_d.flow_control(version="2026-05").apply(vllm_on_eks.l4().apply(expected))
    expected = expected.with_({"instances.count": 5})
    entries = "[baseline, vllm-on-eks-l4, {name: llm-d-flow-control, version: 2026-05}]"
    shown = digest_of("--set", "instances.count=5", "--set", f"presets={entries}")
    assert shown == fingerprint(expected)[:12]
    assert cli.main(["check", str(path), "--set", "presets=[baseline, basline]"]) == 2
    assert capsys.readouterr().err == (
        "spillway: presets[1] = 'basline': unknown preset; did you mean 'baseline'?\n"
    )


def test_a_workload_replaces_all_tenants_and_keeps_the_gateway(
    write: Callable[[Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "schema": 1,
        "presets": ["noisy-neighbor", "vllm-on-eks-post5"],
        "tenants": [{"name": "A", "weight": 9}],
        "gateway": {"guard": {"floor": 8}},
    }
    expected = presets.get("baseline").apply(Simulation(gateway=vllm_on_eks.post5().gateway))
    expected = expected.with_({"gateway.guard.floor": 8})
    path = write(settings)
    assert cli.main(["check", str(path), "--set", "presets=baseline"]) == 0
    assert fingerprint(expected)[:12] in capsys.readouterr().out
    path = write({"simulation": "config.yaml", "presets": "baseline", "grid": {"horizon_s": [1]}})
    path.rename(path.with_name("sweep.yaml"))
    write(settings)
    sweep = run_sweep(path.with_name("sweep.yaml"))
    assert isinstance(sweep, Sweep)
    assert expected.with_({"horizon_s": 1}) in sweep.simulations


def test_presets_of_studies(write: Callable[[Any], Path], tmp_path: Path) -> None:
    space = {"gateway.guard.floor": [8, 16]}
    within = {
        "simulation": {"presets": ["baseline", "vllm-on-eks-post5"], "horizon_s": 9},
        "space": space,
        "maximize": "goodput",
    }
    expected = vllm_on_eks.post5().apply(presets.get("baseline").apply()).with_({"horizon_s": 9})
    assert read_study(write(within)).simulation == expected
    # Beside `simulation` they take the place of its settings.
    beside = {
        **within,
        "simulation": {"horizon_s": 9, "gateway": {"guard": {"floor": 3}}},
        "presets": ["baseline", "vllm-on-eks-post5"],
    }
    study_file = read_study(write(beside))
    assert study_file.simulation == expected
    study_file.write(tmp_path / "again.yaml")
    assert "preset" not in (tmp_path / "again.yaml").read_text()
    assert read_study(tmp_path / "again.yaml").simulation == expected


def test_describe_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["describe", "presets"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(presets.table())
    assert max(map(len, out.splitlines())) <= 100
    for kind, meaning in presets.KINDS.items():
        assert f"{kind}: {meaning}\n" in out
    for name in (*instance.Linear.presets(), *gateway.SloGated.presets()):
        assert name in out
    assert "  instances.latency.linear, instances.latency.jittered.mean\n" in out
    assert cli.main(["describe", "presets.llm-d-flow"]) == 2
    assert "unknown preset; did you mean 'llm-d-flow-control'?" in capsys.readouterr().err
