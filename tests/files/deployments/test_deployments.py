"""Configuration files of every system: golden files, round trips, losses."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support import python_policies
from support.deployments import GOLDEN, refused, written
from support.effort import few_of
from support.paths import ROOT
from support.random_simulations import random_simulation
from support.readers import changed_at, places_of

import spillway
from spillway import ConfigError, Simulation, fleet, gateway, instance, router
from spillway.config.differences import differences
from spillway.files.deployments import TARGETS, Export, carriers, export, import_, unchecked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.* is newer than the rules for its defaults")

NAMES = [f"{target.name}@{version}" for target in TARGETS.values() for version in target.versions]


LLM_D = {"llm-d@0.8", "llm-d@0.9", "llm-d@0.10"}


def module_of(name: str) -> Any:
    """The tests of a system."""
    tool = name.partition("@")[0].replace("-", "_")
    return importlib.import_module(f"systems.{tool}.test_deployment")


def expressible(name: str) -> Simulation:
    """A simulation of which a system carries every setting that it decides."""
    return Simulation().with_(module_of(name).expressible(name))


@pytest.mark.parametrize("name", NAMES)
def test_files_equal_the_golden_ones(name: str) -> None:
    found = export(expressible(name), to=name)
    folder = GOLDEN / name.replace("@", "_")
    if os.environ.get("SPILLWAY_WRITE_GOLDEN"):
        found.write(folder)
    assert found.files == {path.name: path.read_text() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_system_can_express_is_equal(name: str, tmp_path: Path) -> None:
    simulation = expressible(name)
    found = export(simulation, to=name)
    assert found.losses == ()
    assert found.deployed == simulation
    found.write(tmp_path)
    imported = import_(tmp_path, system=name, onto=simulation)
    assert imported.simulation == simulation
    assert imported.unread == ()


def random_export(name: str, seed: int) -> tuple[Simulation, Export]:
    simulation = random_simulation(f"deployments {seed}").simulation
    try:
        return simulation, export(simulation, to=name, allow_lossy=True)
    except ConfigError as error:
        assert "cannot be" in str(error) or "would be empty" in str(error)  # noqa: PT017
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", few_of(range(30), 3))
def test_export_import_export_is_a_fixed_point(name: str, seed: int, tmp_path: Path) -> None:
    _, found = random_export(name, seed)
    found.write(tmp_path)
    imported = import_(tmp_path, system=name, onto=found.deployed)
    assert imported.unread == ()
    assert imported.simulation == found.deployed
    assert export(imported.simulation, to=name).files == found.files
    assert export(imported.simulation, to=name).losses == ()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", few_of(range(30), 3))
def test_losses_are_all_that_differs(name: str, seed: int) -> None:
    simulation, found = random_export(name, seed)
    lost = {loss.path: loss.deployed for loss in found.losses}
    for difference in differences(simulation.to_dict(), found.deployed.to_dict()):
        if isinstance(difference.before, float) and difference.after == pytest.approx(
            difference.before, rel=1e-9, abs=1e-9
        ):
            continue
        if not TARGETS[name.partition("@")[0]].follows_version(difference.path, difference.before):
            assert lost.pop(difference.path) == difference.after
    assert not lost
    assert all(loss.reason for loss in found.losses)


DECIDERS = (
    router.AlwaysRemote(),
    router.NeverRemote(),
    router.UncachedTokens(min_uncached_tokens=64, min_prompt_tokens=500),
    router.Conditional(rule="isl_or_load", prefill_busy_threshold=2, decode_busy_threshold=0.5),
)
CARRIED = {"llm-d": DECIDERS[:3], "dynamo": (DECIDERS[0], DECIDERS[3])}


@pytest.mark.parametrize(
    ("name", "order"), [("llm-d", "decode_first"), ("dynamo", "prefill_first")]
)
def test_retries_of_prefills_are_lost(name: str, order: str) -> None:
    """No file that is written has the flags of llm-d's sidecar; Dynamo has no such retries."""
    simulation = Simulation(
        instances=[instance.InstanceGroup(role=role) for role in ("prefill", "decode")],
        router=router.KvCost() if name == "dynamo" else router.RoundRobin(),
        disaggregation=router.Disaggregation(order="decode_first", prefill_max_retries=2),
    )
    found = unchecked(simulation, name, rest="kept")
    (loss,) = (loss for loss in found.losses if "prefill_max_retries" in loss.path)
    assert found.deployed.disaggregation.prefill_max_retries == 0
    assert found.deployed.disaggregation.order == order
    assert loss.reason


@pytest.mark.parametrize("decider", DECIDERS, ids=lambda decider: decider.kind)
@pytest.mark.parametrize("name", NAMES)
def test_pools_are_written_or_lost(name: str, decider: Any) -> None:
    """Roles and deciders are those of the files, or a loss says what runs instead."""
    group = instance.InstanceGroup()
    pools = [group.replace(role="prefill"), group.replace(role="decode", count=2)]
    system, _, version = name.partition("@")
    order = "prefill_first" if system == "dynamo" else "decode_first"
    simulation = Simulation(
        instances=pools,
        router=router.KvCost() if system == "dynamo" else router.RoundRobin(),
        disaggregation=router.Disaggregation(order="decode_first", decider=decider),
    )
    if decider.kind != "uncached_tokens":
        simulation = simulation.with_({"disaggregation.order": order})
    if system == "dynamo":
        is_after = simulation.disaggregation.order == order
        simulation = simulation.with_(
            {"disaggregation.ends_at_first_token": is_after, "disaggregation.reads_on": True}
        )
    if name == "dynamo@1.2":
        with pytest.raises(ConfigError, match="always queues"):
            unchecked(simulation, name)
        return
    found = unchecked(simulation, name, rest="kept")
    assert [group.role for group in found.deployed.instances] == ["prefill", "decode"]
    lost = {loss.path for loss in found.losses if loss.path.startswith("disaggregation")}
    is_carried = decider in CARRIED.get(system, DECIDERS)
    if decider.kind == "conditional" and system == "dynamo":
        is_carried = version not in ("1.2", "1.3", "1.4")
    assert any(path.startswith("disaggregation.decider") for path in lost) != is_carried
    if is_carried:
        assert not lost


@pytest.mark.parametrize(
    ("changes", "to", "path", "reason"),
    [
        (
            {"instances[0].scheduler": instance.PriorityFcfs(victim="least_computed")},
            "vllm",
            "instances[0].scheduler.victim",
            "vLLM preempts the last one of the lowest priority",
        ),
        (
            {"instances[0].scheduler": instance.LongestPrefix(aging_tokens_per_step=4)},
            "sglang",
            "instances[0].scheduler.aging_tokens_per_step",
            "no flag of SGLang makes prefixes age",
        ),
        (
            {"gateway.limit": gateway.Saturation(staleness_policy="ignore")},
            "llm-d",
            "gateway.limit[0].staleness_policy",
            "llm-d counts an old metric as saturated",
        ),
        (
            {"fleet.autoscaler": fleet.WvaScaler(), "instances[0].count": 4},
            "kubernetes",
            "fleet.autoscaler",
            "an autoscaler of pods has targets of metrics; other scalers",
        ),
        ({"router": router.CacheAware()}, "dynamo", "router", "of the modes of Dynamo's router"),
    ],
)
def test_what_no_file_states_is_lost_with_its_reason(
    changes: dict[str, Any], to: str, path: str, reason: str
) -> None:
    found = unchecked(Simulation().with_(changes), to=to)
    (loss,) = (loss for loss in found.losses if loss.path == path)
    assert loss.reason.startswith(reason)


def test_settings_of_other_systems_are_losses() -> None:
    simulation = Simulation().with_({"instances[0].scheduler": "sjf", "router": "least_loaded"})
    found = export(simulation, to="vllm")
    routed, loss = found.losses
    assert (routed.path, routed.reason) == ("router", "not up to vllm")
    assert str(loss) == (
        "instances[0].scheduler = {kind: sjf, length: prompt}: becomes {kind: fcfs}; "
        "vLLM orders its queue by arrival, or by priority and arrival"
    )
    assert found.outside == ()
    kept = export(simulation, to="vllm", rest="kept")
    assert kept.losses == (loss,)
    assert kept.outside == ("router",)
    assert kept.deployed.router == simulation.router


GUARDED = {
    "gateway": {"admission": [{"kind": "token_bucket"}], "limit": [{"kind": "dual_limit"}]},
    "router": "least_loaded",
    "tenants": [{"name": "default", "max_in_flight": 3}],
    "instances": {"ingress": "engine_request_limit", "num_kv_blocks": 5000},
}


@pytest.mark.parametrize("name", NAMES)
def test_policies_that_nothing_deploys_are_absent(name: str, tmp_path: Path) -> None:
    """Only what the files carry is left of the policies; servers stay."""
    simulation = Simulation().with_(GUARDED)
    if name.startswith(("aibrix", "envoy", "kubernetes", "litellm")):
        with pytest.raises(ConfigError, match=rf"export to {name}: would be empty"):
            export(simulation, to=name, allow_lossy=True)
        return
    with pytest.raises(ConfigError, match=r"gateway.limit = dual_limit: is lost with"):
        export(simulation, to=name)
    found = export(simulation, to=name, allow_lossy=True)
    deployed = found.deployed
    assert deployed.gateway.limit == Simulation().gateway.limit
    assert deployed.tenants[0].max_in_flight is None
    assert deployed.instances[0].num_kv_blocks == 5000
    lost = {loss.path: loss.kinds for loss in found.lost_guards}
    has_gate = name.startswith("dynamo")
    assert lost.keys() == {
        "gateway.admission",
        "gateway.limit",
        *([] if has_gate else ["instances[0].ingress"]),
    }
    assert lost["gateway.limit"] == ("dual_limit",)
    # Files onto the original are the system with the rest kept.
    kept = export(simulation, to=name, rest="kept", allow_lossy=True)
    kept.write(tmp_path)
    assert import_(tmp_path, system=name, onto=simulation).simulation == kept.deployed


def test_losses_of_numbers_and_neutral_policies_are_no_lost_guards() -> None:
    limit = gateway.Saturation(queue_depth_threshold=7.5)
    found = export(Simulation(gateway=gateway.Gateway(limit=limit)), to="llm-d")
    assert "gateway.limit[0].queue_depth_threshold" in {loss.path for loss in found.losses}
    assert found.lost_guards == ()
    # llm-d adds its saturation check to a gateway that always admits.
    bare = export(Simulation(), to="llm-d")
    assert "gateway.admission" in {loss.path for loss in bare.losses}
    assert bare.lost_guards == ()


def test_changes_of_policies_that_are_gone_are_lost() -> None:
    changes = [{"at_s": 1, "set": {"gateway.limit[0].max_in_flight": 4, "gateway.max_queued": 2}}]
    limit = gateway.DualLimit(max_in_flight=8)
    simulation = Simulation(gateway=gateway.Gateway(limit=limit, max_queued=5)).with_(
        {"changes": changes}
    )
    found = export(simulation, to="vllm", allow_lossy=True)
    (change,) = found.deployed.to_dict()["changes"]
    assert change["set"] == {"gateway.max_queued": 2}
    assert "the system lacks the setting that changes" in {loss.reason for loss in found.losses}
    assert export(simulation, to="dynamo", rest="kept", allow_lossy=True).deployed != simulation
    assert export(simulation, to="sglang", rest="kept").deployed.changes == simulation.changes


def limited(n: int, max_queued: int | None = None, count: int = 1) -> Simulation:
    simulation = Simulation(
        gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=n), max_queued=max_queued)
    )
    return simulation.with_({"instances[0].count": count})


def test_a_fixed_limit_is_written_where_the_system_has_one() -> None:
    """As seats of vLLM, requests of a worker of Dynamo, concurrency of an endpoint of llm-d."""
    found = export(limited(50, 21, count=2), to="vllm@0.29")
    assert found.deployed.gateway == gateway.Gateway()
    assert found.deployed.instances[0].max_num_seqs == 25
    assert "--max-num-queued-reqs 35" in found.files["vllm-0.sh"]
    reasons = {loss.path: loss.reason for loss in found.losses}
    assert reasons["gateway.limit"] == "the seats of the instances, --max-num-seqs, hold it"
    assert reasons["gateway.max_queued"] == "the gates of the instances hold it"
    assert "max_queued" not in str(export(limited(50, 21), to="vllm@0.19").moved)
    kept = export(limited(50, 21, count=2), to="vllm", rest="kept")
    assert kept.deployed.gateway == limited(50, 21, count=2).gateway
    assert kept.losses == ()

    found = export(limited(50, count=2), to="dynamo")
    assert found.files["worker-0.sh"].endswith("--engine-request-limit 25\n")
    assert found.lost_guards == ()

    found = export(limited(50, 21, count=2), to="llm-d")
    assert found.deployed.gateway.limit == (
        gateway.Saturation(detector="concurrency", max_concurrency=25),
    )
    assert found.deployed.gateway.max_queued == 21


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_in_another_form_has_the_effect_of_the_one_wanted(name: str) -> None:
    """On one instance: the same answers, up to the time between two attempts of llm-d."""
    if name.startswith(("aibrix", "kubernetes", "vllm-on-eks")):
        return  # without a fixed limit
    traffic = {
        "workload": {"kind": "synthetic", "requests_per_s": 30, "num_requests": 150},
        "instances[0].max_num_seqs": 64,
    }
    wanted = limited(4, 16 if name.startswith("dynamo") else None).with_(traffic)
    deployed = export(wanted, to=name).deployed
    figures = [spillway.simulate(each, seed=1).summary() for each in (wanted, deployed)]
    assert figures[1]["mean_e2el_ms"] == pytest.approx(figures[0]["mean_e2el_ms"], rel=0.02)
    assert figures[1]["completed"] == figures[0]["completed"]


def test_a_printed_export_fits_a_screen() -> None:
    plain = {"metrics.accounting": "clock", "fleet": {}}
    simulation = random_simulation("deployments 3").simulation.with_(GUARDED | plain)
    text = str(export(simulation, to="llm-d", allow_lossy=True))
    lines = text.splitlines()
    assert lines[0].startswith("llm-d@0.10: endpointpickerconfig.yaml, inferenceobjective-")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 120
    assert str(export(Simulation(), to="vllm")) == (
        "vllm@0.33: vllm-0.sh\ncarries every setting that it decides\n"
        "note: instances[].engine_rules, instances[].kv_cache.generated_tokens: deployed has those "
        "of vllm 0.33"
    )


def test_other_values_of_rest_are_refused() -> None:
    with pytest.raises(ConfigError, match="rest = 'gone': must be one of absent, kept"):
        export(Simulation(), to="vllm", rest="gone")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gateway.limit.saturation", LLM_D),
        ("gateway.usage_limit.priority_holdback", LLM_D),  # beside saturation only
        ("gateway.controller.aimd", {"vllm-on-eks@2dca487", "vllm-on-eks@0c78403"}),
        (
            "gateway.admission.busy_threshold",
            {f"dynamo@{version}" for version in TARGETS["dynamo"].versions},
        ),
        (
            "instances[0].ingress.vllm_queue_limits",
            {"vllm@0.29", "vllm@0.33", "sglang@0.4", "sglang@0.5.6", "sglang@0.5.23"},
        ),
        ("router.weighted.scorers.queue_depth", LLM_D),
        ("gateway.limit.dual_limit", set()),
        ("fleet.autoscaler.queue", set()),
        ("gateway.limit", None),
        ("workload.synthetic.clients.arrivals.poisson", None),
    ],
)
def test_carriers_are_the_systems_whose_files_keep_the_policy(
    path: str, expected: set[str] | None
) -> None:
    found = carriers(path)
    assert (found if found is None else {carrier.target for carrier in found}) == expected


def test_a_carrier_names_what_it_loses() -> None:
    (old, new) = carriers("gateway.controller.aimd") or ()
    assert str(old) == "vllm-on-eks@2dca487 (not decrease)"  # it cuts by a step only
    assert new.lost == ()
    assert carriers("gateway.limit.saturation", to="envoy") == ()


def test_unknown_systems_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"to = 'k8s': must be one of aibrix"):
        export(Simulation(), to="k8s")
    with pytest.raises(ConfigError, match=r"must be one of vllm@0.10, vllm@0.12"):
        export(Simulation(), to="vllm@0.1")
    assert "cannot be read" in refused(tmp_path / "missing.sh", system="vllm")
    assert "at least one file" in refused(tmp_path, system="vllm")


def test_yaml_of_golden_files_is_read_by_another_parser() -> None:
    for path in GOLDEN.rglob("*.yaml"):
        assert list(yaml.safe_load_all(path.read_text()))


def test_the_guide_names_every_system_and_version() -> None:
    page = (ROOT / "docs" / "guides" / "export_to_production.md").read_text(encoding="utf-8")
    for target in TARGETS.values():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{target.name}` |"))
        assert row.endswith(f"| {', '.join(target.versions)} |")


REFUSED = [
    (target.name, file, *row)
    for target in TARGETS.values()
    for file, rows in module_of(target.name).REFUSED.items()
    for row in rows
]


@pytest.mark.parametrize(("system", "file", "text", "message"), REFUSED)
def test_invalid_files_are_refused(
    system: str, file: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    assert message in refused(tmp_path / file, system=system)


DYNAMO = "python -m dynamo.frontend"
FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
ADMISSION = f"'@type': {FILTERS}.admission_control.v3.AdmissionControl"


WRONG = [None, True, -1, 0, 3, 2.5, float("inf"), "", "x", [], [1], {}, {"a": 1}, "9" * 400]
WORDS = ["-5", "x", "'", "--", "=", "--=", "{}", "[", "1e999", "nan", "", "--max-num-seqs"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", few_of(range(20), 2))
def test_damaged_files_raise_nothing_else(name: str, seed: int, tmp_path: Path) -> None:
    """A value of another type, or another word, at a random place of a golden file."""
    rng = random.Random(f"{name} {seed}")
    texts = {path.name: path.read_text() for path in (GOLDEN / name.replace("@", "_")).iterdir()}
    file = rng.choice(sorted(texts))
    if file.endswith((".yaml", ".json")):
        content = yaml.safe_load(texts[file])
        place = rng.choice(list(places_of(content)))
        texts[file] = yaml.safe_dump(changed_at(content, place, lambda _: rng.choice(WRONG)))
    else:
        words = texts[file].split(" ")
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        texts[file] = " ".join(words)
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    with contextlib.suppress(ConfigError):
        assert import_(tmp_path, system=name).simulation


NONSENSE = {
    "text": "hello\n",
    "empty": "",
    "json": '{"a": 1}',
    "yaml": "a: 1\n",
    "list": "- 1\n- 2\n",
    "null": "null\n",
    "script": "#!/bin/sh\necho hello --verbose\n",
}


@pytest.mark.parametrize("system", TARGETS)
@pytest.mark.parametrize("suffix", ["yaml", "json", "sh", "txt"])
@pytest.mark.parametrize("name", NONSENSE)
def test_a_file_in_which_nothing_is_known_is_refused(
    tmp_path: Path, name: str, suffix: str, system: str
) -> None:
    if (name, system) == ("empty", "llm-d"):
        return  # its router has a configuration for that
    path = tmp_path / f"some.{suffix}"
    path.write_text(NONSENSE[name])
    message = refused(path, system=system)
    assert f"some.{suffix}" in message
    assert "must" in message or "missing" in message or "not valid" in message


@pytest.mark.parametrize(
    ("system", "files", "unknown"),
    [
        ("dynamo", {"a__sh": DYNAMO, "README__md": "read me"}, "README.md"),
        ("envoy", {"a__yaml": ADMISSION, "b__yaml": "a: 1"}, "b.yaml"),
    ],
)
def test_files_beside_known_ones_are_listed(
    tmp_path: Path, system: str, files: dict[str, str], unknown: str
) -> None:
    found = import_(written(tmp_path, **files), system=system)
    (unread,) = (unread for unread in found.unread if unread.field.endswith(unknown))
    assert str(unread).partition(": ")[2].startswith("nothing in it is known: not ")


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "NaN", "1e999"])
@pytest.mark.parametrize(
    ("system", "text", "field"),
    [
        ("dynamo", f"{DYNAMO} --router-mode kv --router-temperature VALUE", "router-temperature"),
        ("dynamo", f"{DYNAMO} --active-prefill-tokens-threshold VALUE", "active-prefill-tokens"),
        ("vllm", "vllm serve m --gpu-memory-utilization VALUE", "gpu-memory-utilization"),
        ("vllm", "vllm serve m --max-num-seqs VALUE", "max-num-seqs"),
        ("vllm-on-eks", "num_workers: VALUE\ncap_per_worker: 4", "num_workers"),
        (
            "envoy",
            f"{ADMISSION}\naggression: {{default_value: VALUE}}",
            "aggression: default_value",
        ),
    ],
)
def test_values_that_are_not_finite_are_refused(
    tmp_path: Path, system: str, text: str, field: str, value: str
) -> None:
    message = refused(written(tmp_path, a__yaml=text.replace("VALUE", value)), system=system)
    assert field in message
    assert "must be a" in message


def test_policies_in_python_that_are_kept_still_run(tmp_path: Path) -> None:
    group = {"scheduler": python_policies.Scheduler, "ingress": instance.VllmQueueLimits()}
    simulation = Simulation(instances=group, busy_monitor={"active_decode_blocks_threshold": 0.5})
    exported = export(simulation, to="dynamo", rest="kept", allow_lossy=True)
    exported.write(tmp_path)
    imported = import_(tmp_path, system="dynamo", onto=exported.deployed)
    for found in (exported.deployed, imported.simulation):
        assert found.instances[0].ingress.kind == "open"
        assert found.instances[0].scheduler.kind == "python"
        assert spillway.simulate(found).summary()["completed"] > 0
