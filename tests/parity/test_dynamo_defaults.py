"""Defaults, values and files of policy classes that Dynamo 1.6.1 takes or refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import vectors

from spillway import ConfigError
from spillway.config.yaml import parse
from spillway.files.deployments import import_
from spillway.systems.dynamo import policies

if TYPE_CHECKING:
    from pathlib import Path

CASES = vectors("dynamo/defaults")
SETTINGS = [case for case in CASES if "set" in case]
FILES = [case for case in CASES if "policy_file" in case]
FLAGS = {
    "overlap_score_credit": "router-kv-overlap-score-credit",
    "decode_active_request_weight": "router-decode-active-request-weight",
}
pytestmark = pytest.mark.skipif(not CASES, reason="needs recorded answers of Dynamo")

Case = dict[str, Any]


def imported(folder: Path, values: Case) -> Any:
    words = [
        f"--{FLAGS.get(name, name.replace('_', '-'))}={v}"
        for name, v in values.items()
        if not name.startswith("conditional_disagg")
    ]
    if values.get("conditional_disagg_enabled"):
        given = json.dumps({"policy": values["conditional_disagg_policy"]})
        words += ["--router-conditional-disagg", f"--router-conditional-disagg-config='{given}'"]
    path = folder / "frontend.sh"
    path.write_text(" ".join(["python -m dynamo.frontend --router-mode kv", *words]))
    return import_(path, system="dynamo@1.6")


def in_force(simulation: Any) -> Case:
    limits = [limit.threshold for limit in simulation.gateway.limit if hasattr(limit, "threshold")]
    return {
        "overlap_score_credit": simulation.router.overlap_credit,
        "router_queue_threshold": limits[0] if limits else None,
        "router_temperature": simulation.router.temperature,
    }


def test_the_defaults_are_the_recorded_ones(tmp_path: Path) -> None:
    (recorded,) = (case["KvRouterConfig"] for case in CASES if "KvRouterConfig" in case)
    found = imported(tmp_path, {})
    assert in_force(found.simulation) == {
        name: recorded[name] for name in in_force(found.simulation)
    }
    policy = found.simulation.router
    assert (policy.overlap_decay, policy.prefill_load_scale, policy.overlap) == (
        recorded["overlap_score_credit_decay"],
        recorded["prefill_load_scale"],
        "kv_events" if recorded["use_kv_events"] else "sent",
    )
    assert (
        found.simulation.busy_monitor.track_output_blocks is recorded["router_track_output_blocks"]
    )


@pytest.mark.parametrize("case", SETTINGS, ids=lambda case: f"set-{case['id']}")
def test_values_are_in_force_or_refused(case: Case, tmp_path: Path) -> None:
    if "unknown_thing" in case["set"]:
        assert "is no flag of dynamo.frontend" in str(imported(tmp_path, case["set"]).unread[0])
    elif "error" in case["result"]:
        with pytest.raises(ConfigError, match=r"frontend\.sh: (\w+ = -1|.*threshold): must be"):
            imported(tmp_path, case["set"])
    else:
        assert in_force(imported(tmp_path, case["set"]).simulation) == case["result"]


@pytest.mark.parametrize("case", FILES, ids=lambda case: f"file-{case['id']}")
def test_files_of_classes_are_taken_or_refused(case: Case) -> None:
    content = parse(case["policy_file"], "policy")
    if "error" in case["result"]:
        with pytest.raises(ConfigError, match="policy"):
            policies.read(content, "policy", [])
        return
    classes, threshold, unread = policies.read(content, "policy", [])
    assert classes is not None
    assert threshold is None
    (given,) = case["result"]["classes"]
    (found,) = classes.classes
    assert f'name: "{found.name}", queue_policy: Fcfs, quantum: {found.quantum_tokens}' in given
    assert "request_queue_limit_per_worker: Some(0)" in given
    assert [entry.effect for entry in unread] == ["not_modeled", "assumed"]
