"""Flags and thresholds of Dynamo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.deployments import written

from spillway import router
from spillway.files.deployments import import_
from spillway.systems.dynamo import presets as dynamo

if TYPE_CHECKING:
    from pathlib import Path


def expressible(name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    thresholds = {
        "active_decode_blocks_threshold": 0.85,
        "active_prefill_tokens_threshold": 10_000,
        "active_prefill_tokens_threshold_frac": 1.5 if name == "dynamo@1.2" else None,
    }
    make = dynamo.v1_2 if name == "dynamo@1.2" else dynamo.v1_3
    preset = make(**thresholds, engine_request_limit=200, track_output_blocks=True)  # type: ignore[arg-type]
    decay = 0.0 if name == "dynamo@1.2" else 0.5  # a flag from 1.3 on
    router_ = router.KvCost(overlap_credit=0.9, overlap_decay=decay, temperature=0.2)
    return preset.apply().replace(router=router_).to_dict()


DYNAMO = "python -m dynamo.frontend"


def test_dynamo_as_in_production(tmp_path: Path) -> None:
    files = {
        "frontend__sh": "python -m dynamo.frontend --http-port 8000 --router-mode kv "
        "--router-kv-overlap-score-credit 0.5 --router-queue-threshold 2",
        "busy__json": '{"model": "m", "active_prefill_tokens_threshold": 5000}',
        "worker__sh": "python -m dynamo.vllm --engine-request-limit 32 --max-num-seqs 8",
    }
    found = import_(written(tmp_path, **files), system="dynamo@1.2")
    assert found.simulation.router == router.KvCost(overlap_credit=0.5)
    # Dynamo 1.2 fills in the thresholds that are not given.
    filled = dynamo.v1_2(active_prefill_tokens_threshold=5000)
    assert found.simulation.busy_monitor == filled.busy_monitor
    assert found.simulation.gateway.admission[0].overload_status == 503
    assert found.simulation.instances[0].ingress.max_requests == 32
    assert found.simulation.instances[0].max_num_seqs == 8  # the engine's reader has it
    assert {unread.field.rpartition(": ")[2]: unread.value for unread in found.unread} == {
        "router-queue-threshold": 2,
    }


REFUSED = {
    "a.yaml": [
        ("python -m dynamo.frontend --router-temperature hot", "must be a finite number"),
        (
            f"export DYN_HTTP_OVERLOAD_STATUS_CODE=x\n{DYNAMO} --active-prefill-tokens-threshold 5",
            "DYN_HTTP_OVERLOAD_STATUS_CODE = 'x': must be a status",
        ),
    ]
}
