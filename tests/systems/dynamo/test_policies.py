"""Files of policy classes of Dynamo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused, written

from spillway import Simulation, gateway, router
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path

LINE = "python -m dynamo.frontend --router-mode kv --router-policy-config /etc/policy.yaml"
FILE = """\
default_policy_family: b
uncached_isl_buckets: [{min_tokens: 0, bucket: s}, {min_tokens: 256, bucket: l}]
policy_classes:
- {name: a_s, policy_family: a, cache_bucket: s, quantum: 4, prefill_busy_threshold_frac: 2}
- {name: b_l, policy_family: b, cache_bucket: l, quantum: 1, queue_policy: wspt,
   prefill_busy_threshold_frac: 2, request_queue_limit_per_worker: 3, worker: x}
"""
CLASSES = [
    gateway.PolicyClass(name="a_s", family="a", quantum_tokens=4),
    gateway.PolicyClass(
        name="b_l", family="b", min_uncached_tokens=256, order="wspt", max_requests_per_worker=3
    ),
]


def read(folder: Path, text: str, **options: Any) -> Any:
    files = list(written(folder, frontend__sh=LINE, policy__yaml=text))
    return import_(files, system="dynamo", **options)


def test_classes_wait_for_their_threshold(tmp_path: Path) -> None:
    found = read(tmp_path, FILE)
    assert found.simulation.gateway.limit == (gateway.PrefillBusy(threshold=2),)
    (band,) = found.simulation.gateway.bands
    assert list(band.fairness.classes) == CLASSES
    names = [slo_class.name for slo_class in found.simulation.slo_classes]
    assert [asked.slo_class for asked in band.fairness.requests] == names
    assert {asked.family for asked in band.fairness.requests} == {"b"}
    ((place, value),) = ((entry.field, entry.value) for entry in found.unread)
    assert (place, value) == ("policy.yaml: policy_classes[1]: worker", "x")
    assert any("is the family of all requests here" in note for note in found.notes)


def test_classes_are_written_to_a_file(tmp_path: Path) -> None:
    fairness = gateway.PolicyClasses(classes=CLASSES)
    rules = gateway.Gateway(
        bands=[gateway.Band(fairness=fairness)], limit=gateway.PrefillBusy(threshold=3)
    )
    simulation = Simulation(gateway=rules, router=router.KvCost(prefill_unit="tokens"))
    found = export(simulation, to="dynamo@1.6")
    assert found.losses == ()
    assert set(found.files) == {"frontend.sh", "router_config.json", "router_policy.yaml"}
    found.write(tmp_path)
    assert import_(tmp_path, system="dynamo", onto=simulation).simulation == simulation
    old = {loss.path: loss for loss in export(simulation, to="dynamo@1.2").losses}
    assert "gateway.bands[0].fairness.classes" in str(old)
    late = simulation.with_({"gateway.bands[0].fairness.classes[1].order": "lcfs"})
    assert "router_policy.yaml" not in export(late, to="dynamo@1.6").files


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("min_tokens: 0", "min_tokens: 5"),
            "uncached_isl_buckets = {'s': 5, 'l': 256}: must start",
        ),
        (("quantum: 4, ", ""), "policy_classes[0]: quantum: is missing"),
        (("quantum: 4", "quantum: 0"), "quantum = 0: must be > 0"),
        (("frac: 2}", "frac: -1}"), "prefill_busy_threshold_frac = -1: must be >= 0"),
        (("queue_policy: wspt", "queue_policy: lcfs"), "must be one of fcfs, wspt"),
        (("cache_bucket: l", "cache_bucket: x"), "cache_bucket = 'x': must be one of s, l"),
        (("frac: 2}", "frac: 1}"), "differs between the classes"),
        (("per_worker: 3", "per_worker: 0"), "lets no request of the class wait"),
        (("default_policy_family: b\n", ""), "must have all of default_policy_family"),
    ],
)
def test_what_the_router_refuses(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = FILE.replace(*change)
    assert text != FILE
    files = list(written(tmp_path, frontend__sh=LINE, policy__yaml=text))
    assert message in refused(files, system="dynamo")


def test_a_file_that_is_missing_is_not_guessed(tmp_path: Path) -> None:
    files = list(written(tmp_path, frontend__sh=LINE))
    assert "is not among the files, so its classes are not known" in refused(files, system="dynamo")
