"""`spillway diagnose` and `spillway why`, and their calls in Python."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import ROOT
from support.runs import run, steady

import spillway
from spillway.diagnosis import Diagnosis, Why
from spillway.findings.explanation import Explanation
from spillway.instance import InstanceGroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

THREADS = ROOT / "tests" / "threads"
LONG = THREADS / "06-long-prompts-starve-short" / "configuration.yaml"
REMEDY = {"instances[0].long_prefill_token_threshold": 1024}


def test_the_remedy_that_helps_comes_first() -> None:
    found = spillway.diagnose(LONG, tries=True, seeds=4)
    best = found.trials[0]
    assert (best.finding, dict(best.settings)) == ("long_prompts", REMEDY)
    assert best.helps
    assert best.in_time - found.in_time == pytest.approx(best.gain.mean)  # type: ignore[union-attr]
    cured = [
        spillway.simulate(spillway.load(LONG).with_(REMEDY), seed).summary()["goodput"]
        for seed in found.seeds
    ]
    assert best.in_time == pytest.approx(sum(map(float, cured)) / 4)


def test_without_targets_speed_counts() -> None:
    found = spillway.diagnose(
        THREADS / "19-least-request-by-old-metrics" / "configuration.yaml", tries=True, seeds=2
    )
    assert not found.has_targets
    gain = found.trials[0].gain
    assert gain is not None
    assert gain.mean > 0
    assert "as fast as nine in ten requests are now" in repr(found)


def test_where_all_are_in_time_the_tails_rank_and_remedies_can_be_copied() -> None:
    found = spillway.diagnose(
        THREADS / "09-prefix-hot-spot" / "configuration.yaml", tries=True, seeds=2
    )
    assert found.in_time == 1
    tails = [trial.tails_ms["p99_e2el_ms"] for trial in found.trials]
    assert tails == sorted(tails)
    assert tails[0] < found.tails_ms["p99_e2el_ms"] / 2
    assert "{kind: active_requests, weight: 4}]" in repr(found)
    assert "…" not in repr(found).rpartition("remedies, ")[2]


def test_a_remedy_that_is_not_valid_is_shown_with_its_reason() -> None:
    from spillway.diagnosis import _candidates
    from spillway.findings.finding import Finding

    finding = Finding("", "x.", "name", remedies=({"router.unknown": 1}, {"warm_up_s": 1}))
    found, refused = _candidates(spillway.Simulation(), Explanation((finding, finding), ""))
    assert [settings for _, settings, _ in found] == [{"warm_up_s": 1}]
    assert "router.unknown" in refused[0].refused


def test_diagnose_in_a_shell(called: Callable[..., Any]) -> None:
    status, out, _ = called("diagnose", LONG, "--try", "--seeds", "2")
    assert status == 0
    assert out.startswith("1. high, long_prompts: instances[0].long_prefill_token_threshold: ")
    assert "try instances[0].long_prefill_token_threshold = 1024" in out
    assert "prefill_of_others" in out
    assert "remedies, 2 paired seeds" in out
    _, printed, _ = called("diagnose", LONG, "--json", "--all")
    document = json.loads(printed)
    assert document["findings"][0]["name"] == "long_prompts"
    assert document["causes"]["mean_s"]["all"]["decode"] > 0
    assert document["trials"] == []
    assert called("diagnose", LONG, "--try", "--seeds", "1")[0] == 2


def test_a_diagnosis_is_saved_and_loaded(called: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.json"
    status, out, err = called("diagnose", LONG, "--try", "--out", path)
    assert (status, f"wrote {path}" in err) == (0, True)
    found = Diagnosis.load(path)
    assert f"{found}\n" == out
    assert found.trials[0].helps
    assert REMEDY in found.explanation.findings[0].remedies
    again = tmp_path / "again.json"
    found.save(again)
    assert again.read_bytes() == path.read_bytes()
    path.write_text("{}")
    with pytest.raises(spillway.ConfigError, match=r"must be a file of Diagnosis.save"):
        Diagnosis.load(path)


def test_a_diagnosis_without_causes_is_loaded_too(tmp_path: Path) -> None:
    known = spillway.diagnose(LONG)
    unknown = Explanation(known.explanation.findings, "the run cannot be repeated.")
    found = dataclasses.replace(known, explanation=unknown)
    found.save(tmp_path / "d.json")
    loaded = Diagnosis.load(tmp_path / "d.json")
    assert loaded.text() == found.text()
    assert "time by cause is unknown" in loaded.text()


def test_why_in_a_shell(called: Callable[..., Any], tmp_path: Path) -> None:
    result = spillway.simulate(LONG, 1)
    is_late = (result.requests["ttft_s"] > 0.3) & (result.requests["slo_class"] == "critical")
    late = int(is_late.nonzero()[0][0])
    name = str(result.requests["request_id"][late])
    status, out, _ = called("why", LONG, name, "--seed", "1")
    assert (status, out) == (0, f"{result.why(late)}\n")
    assert "over the target of 300 ms; without " in out
    result.save(tmp_path / "run.npz")
    assert called("why", tmp_path / "run.npz", name)[1] == out
    document = json.loads(called("why", tmp_path / "run.npz", name, "--json")[1])
    e2e_s = float(result.requests["e2e_s"][late])
    assert sum(document["causes_s"].values()) == pytest.approx(e2e_s)
    assert document == result.why(late).to_dict()
    path = tmp_path / "why.json"
    assert f"wrote {path}" in called("why", LONG, name, "--seed", "1", "--out", path)[2]
    loaded = Why.load(path)
    assert (loaded, loaded.to_dict()) == (result.why(late), document)
    assert pickle.loads(pickle.dumps(loaded)).to_dict() == document
    path.write_text('{"kind": "diagnosis"}')
    with pytest.raises(spillway.ConfigError, match=r"must be a file of Why.save"):
        Why.load(path)
    status, out, err = called("why", LONG, "absent")
    assert (status, out) == (2, "")
    assert "no request 'absent'" in err


def test_why_of_a_result_that_is_not_there(called: Callable[..., Any]) -> None:
    status, _, err = called("why", "none.npz", "3")
    assert (status, "none.npz: cannot be read: No such file" in err) == (2, True)


def test_what_cannot_be_tried_is_refused_before_any_run(called: Callable[..., Any]) -> None:
    streaming = spillway.Simulation(metrics={"streaming": True})
    with pytest.raises(spillway.ConfigError, match=r"metrics.streaming.*to try remedies"):
        spillway.diagnose(streaming, tries=True)
    with pytest.raises(spillway.ConfigError, match="seeds = 1: must be >= 2"):
        spillway.diagnose(LONG, tries=True, seeds=1)
    assert spillway.diagnose(streaming, seeds=1).trials == ()
    # A target of a class without requests is none.
    classes = [{"name": "standard"}, {"name": "unused", "target_ttft_s": 1}]
    unused = streaming.replace(slo_classes=classes)
    with pytest.raises(spillway.ConfigError, match="to try remedies"):
        spillway.diagnose(unused, tries=True)
    status, _, err = called("diagnose", LONG, "--try", "--set", "metrics.streaming=true")
    assert (status, err) == (0, "")


def test_why_of_a_later_attempt_counts_from_that_attempt() -> None:
    """Refused twice, with a prediction that it would be late, and served at its third attempt."""
    admission = {"kind": "rate_limit", "max_requests": None, "max_parallel": 1}
    result = run(
        [0.0, 0.0, 0.5],
        output_tokens=[80, 10, 90],
        tenant=["a", "a", "b"],
        instances=InstanceGroup(latency=steady(10), num_kv_blocks=1000),
        gateway={"admission": admission},
        reaction={"retries": [{"max_attempts": 5, "backoff_s": 1, "jitter": "none"}]},
    )
    assert result.requests["attempts"].tolist() == [1, 2, 1]
    lines = result.why(1).splitlines()
    assert "2 attempts, the last at 1.000000 s; latencies count from the first" in lines
    ahead = "when it was sent to instance 0, that had 1 running and 0 waiting (by tenant: b 1)"
    assert ahead in lines
    assert not any(line.startswith("refused") for line in lines)


def test_why_takes_the_options_of_a_configuration(
    called: Callable[..., Any], tmp_path: Path
) -> None:
    limit = "gateway.limit={kind: fixed, max_in_flight: 1}"
    status, out, _ = called("why", LONG, "5", "--set", limit)
    assert status == 0
    assert "gateway_queue" in out
    spillway.simulate(LONG).save(tmp_path / "run.npz")
    status, _, err = called("why", tmp_path / "run.npz", "5", "--set", limit)
    assert status == 2
    assert "is a saved result, which --set cannot change" in err


def test_why_of_a_lost_request_names_what_decided() -> None:
    result = spillway.simulate(THREADS / "24-bucket-below-prompt" / "configuration.yaml", 1)
    text = result.why(0)
    assert "decided by gateway.admission[0] = token_bucket (capacity_tokens = 400" in text
    assert "on an idle fleet" in text
