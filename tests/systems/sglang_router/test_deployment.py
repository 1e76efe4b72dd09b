"""Command lines of SGLang's router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import refused, written

from spillway import Simulation, gateway, router
from spillway.files.deployments import export, import_

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.files.deployments import Import

LAUNCH = "python -m sglang_router.launch_router"
WAITS = gateway.Band(queue=gateway.Queue(timeout_s=60))
POLICIES: dict[str, Any] = {
    "random": router.Weighted(scorers=[router.ActiveRequests()], picker=router.Random()),
    "round_robin": router.RoundRobin(),
    "power_of_two": router.Weighted(scorers=[router.ActiveRequests()], picker=router.PowerOfTwo()),
    "cache_aware": router.CacheAware(),
}


def expressible(_name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    return {
        "gateway": gateway.Gateway(
            limit=gateway.FixedLimit(max_in_flight=256),
            max_queued=128,
            bands=[gateway.Band(queue=gateway.Queue(timeout_s=30))],
        ),
        "router": router.CacheAware(
            cache_threshold=0.5, balance_abs_threshold=32, balance_rel_threshold=1.0001
        ),
    }


def read(folder: Path, flags: str, **options: Any) -> Import:
    """The import of a router with flags."""
    return import_(written(folder, a__sh=f"{LAUNCH} {flags}"), system="sglang-router", **options)


def test_a_router_as_in_production(tmp_path: Path) -> None:
    flags = (
        "--worker-urls http://a:8000 http://b:8000 --policy cache_aware --cache-threshold 0.5 \\\n"
        "  --balance-abs-threshold 32 --max-concurrent-requests 256 --queue-size 128 \\\n"
        "  --queue-timeout-secs 30 --rate-limit-tokens-per-second 512 --retry-max-retries 3 \\\n"
        "  --max-tree-size 67108864 --api-key sk-secret --host 0.0.0.0 --postgres-db-url "
        "postgres://user:secret@db/x"
    )
    found = read(tmp_path, flags)
    assert found.simulation.router == router.CacheAware(
        cache_threshold=0.5, balance_abs_threshold=32
    )
    assert found.simulation.gateway == expressible("")["gateway"]
    assert {unread.field.rpartition(": ")[2] for unread in found.unread} == {
        "rate-limit-tokens-per-second",
        "retry-max-retries",
        "max-tree-size",
    }
    assert any("are 2 workers" in note for note in found.notes)
    assert "secret" not in repr(found)


@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_the_defaults(tmp_path: Path, version: str) -> None:
    found = import_(written(tmp_path, a__sh=LAUNCH), system=f"sglang-router@{version}")
    assert found.simulation == Simulation(router=router.CacheAware())
    assert found.notes == ()
    limited = read(tmp_path, "--max-concurrent-requests 9")
    assert limited.simulation.gateway == gateway.Gateway(
        limit=gateway.FixedLimit(max_in_flight=9), max_queued=100, bands=[WAITS]
    )
    (note,) = limited.notes
    assert "rate-limit-tokens-per-second = 9: is not given" in note


@pytest.mark.parametrize("policy", POLICIES)
def test_policies(tmp_path: Path, policy: str) -> None:
    found = read(tmp_path, f"--policy {policy}")
    assert found.simulation.router == POLICIES[policy]
    exported = export(found.simulation, to="sglang-router")
    assert exported.losses == ()
    assert f"--policy {policy}" in exported.files["router.sh"]


def test_policies_without_a_counterpart_are_listed(tmp_path: Path) -> None:
    found = read(tmp_path, "--policy manual --assignment-mode min_load --cache-threshold 0.4")
    assert found.simulation.router == router.RoundRobin()
    listed = {unread.field.rpartition(": ")[2]: unread.value for unread in found.unread}
    assert listed == {"policy": "manual", "assignment-mode": "min_load"}
    (threshold,) = found.irrelevant
    assert threshold.field.endswith("cache-threshold")


def test_without_a_queue_one_request_waits(tmp_path: Path) -> None:
    found = read(tmp_path, "--max-concurrent-requests 9 --queue-size 0")
    assert found.simulation.gateway.max_queued == 1
    assert any("one request waits here" in note for note in found.notes)


def test_a_queue_without_bounds_is_the_longest_that_a_flag_states(tmp_path: Path) -> None:
    simulation = Simulation(gateway=gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=8)))
    found = export(simulation, to="sglang-router")
    assert found.losses == ()
    found.write(tmp_path)
    assert import_(tmp_path, system="sglang-router").simulation == simulation


@pytest.mark.parametrize(
    ("timeout_s", "flag", "becomes"), [(0.2, 1, 1.0), (7.5, 8, 8.0), (8.0, 8, None)]
)
def test_parts_of_seconds_are_lost(timeout_s: float, flag: int, becomes: float | None) -> None:
    simulation = Simulation().with_(
        {"gateway.limit": {"kind": "fixed"}, "gateway.bands.queue.timeout_s": timeout_s}
    )
    found = export(simulation, to="sglang-router")
    assert f"--queue-timeout-secs {flag}" in found.files["router.sh"]
    assert [loss.deployed for loss in found.losses] == ([] if becomes is None else [becomes])


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--pd-disaggregation --prefill http://a 1 --decode http://b", "prefill and decode"),
        ("--mini-lb", "prefill and decode"),
        ("--enable-igw", "several models"),
    ],
)
def test_what_is_not_modeled_is_refused(tmp_path: Path, flags: str, reason: str) -> None:
    path = [*written(tmp_path, a__sh=f"{LAUNCH} {flags}")]
    assert reason in refused(path, system="sglang-router")
    assert import_(path, system="sglang-router", allow_lossy=True).unread


@pytest.mark.parametrize("call", ["smg launch", "sglang-router launch", "sgl-model-gateway"])
def test_other_names_of_the_router(tmp_path: Path, call: str) -> None:
    found = import_(written(tmp_path, a__sh=f"{call} --policy random"))
    assert found.simulation.router == POLICIES["random"]


@pytest.mark.parametrize("ranks", ["--dp-size 4", "--dp=4"])
def test_a_router_that_starts_its_servers(tmp_path: Path, ranks: str) -> None:
    text = (
        f"python -m sglang_router.launch_server --model-path Qwen/Qwen3-8B {ranks} \\\n"
        "  --max-running-requests 48 --router-policy power_of_two --host 0.0.0.0 \\\n"
        "  --router-max-concurrent-requests=64"
    )
    found = import_(written(tmp_path, a__sh=text))
    (group,) = found.simulation.instances
    assert (group.count, group.data_parallel_size, group.max_num_seqs) == (4, 1, 48)
    assert found.simulation.router == POLICIES["power_of_two"]
    assert found.simulation.gateway.limit == (gateway.FixedLimit(max_in_flight=64),)


def test_a_deployment_of_router_and_servers(tmp_path: Path) -> None:
    def container(name: str, image: str, command: str, replicas: int) -> str:
        return (
            f"kind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n"
            f"  template: {{spec: {{containers: [{{name: c, image: '{image}', "
            f"command: [{', '.join(command.split())}]}}]}}}}\n"
        )

    server = "python3 -m sglang.launch_server --model-path m/m --max-running-requests 32"
    text = container("router", "lmsysorg/sgl-model-gateway:v0.3.2", f"{LAUNCH} --policy random", 2)
    text += "---\n" + container("server", "lmsysorg/sglang:v0.5.6", server, 3)
    found = import_(written(tmp_path, a__yaml=text))
    assert found.simulation.router == POLICIES["random"]
    (group,) = found.simulation.instances
    assert (group.count, group.max_num_seqs) == (3, 32)
    assert any("one router decides here" in str(unread) for unread in found.unread)


REFUSED = {
    "a.sh": [
        (f"{LAUNCH} --max-concurrent-requests 0", "must be >= 1, or -1 for no limit"),
        (f"{LAUNCH} --queue-timeout-secs 0", "queue-timeout-secs = 0: must be >= 1"),
        (f"{LAUNCH} --cache-threshold 2", "cache_threshold = 2"),
        (f"{LAUNCH}\n{LAUNCH} --policy random", "is a second router"),
        ("smg server --dp-size 0 --model-path m", "--dp-size = '0': must be >= 1"),
    ]
}
