"""The latency that rejected requests would have seen on an idle fleet."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from support.routing import WORKLOADS

from spillway import Result, Simulation, UsageError, profiles, run_many, simulate, trace
from spillway.config.profiles import BLIS_SERVER

ALPHA0_US, ALPHA_INPUT_US, ALPHA_OUTPUT_US = 1700, 3, 40
BETA0_US, BETA_PREFILL_US, BETA_DECODE_US = 5000, 17, 90
ADMISSION_NS, ROUTING_NS = 2_000_001, 3_000_007
REGRET_COLUMNS = [
    *("row", "request_id", "tenant", "slo_class", "reason"),
    *("unloaded_ttft_s", "unloaded_tpot_s", "unloaded_e2e_s"),
    *("all_admitted_ttft_s", "all_admitted_tpot_s", "all_admitted_e2e_s"),
    *("has_targets", "meets_on_idle_fleet", "meets_when_all_admitted"),
]


def linear(slower: int = 1) -> dict[str, Any]:
    return {
        "kind": "linear",
        "alpha0_us": ALPHA0_US,
        "alpha_input_us": ALPHA_INPUT_US,
        "alpha_output_us": ALPHA_OUTPUT_US,
        "beta0_us": BETA0_US * slower,
        "beta_prefill_us": BETA_PREFILL_US * slower,
        "beta_decode_us": BETA_DECODE_US * slower,
        "beta_context_us": 0,
    }


def alone_ns(prompt: int, output: int, slower: int = 1) -> tuple[int, int]:
    """TTFT and E2E on an idle fleet: one step of the prompt, then the decoding steps."""
    arriving = 1000 * (ALPHA0_US + ALPHA_INPUT_US * prompt) + ADMISSION_NS + ROUTING_NS
    first = 1000 * (slower * (BETA0_US + BETA_PREFILL_US * prompt) + ALPHA_OUTPUT_US)
    later = 1000 * (slower * (BETA0_US + BETA_DECODE_US) + ALPHA_OUTPUT_US)
    return arriving + first, arriving + first + later * max(output - 1, 0)


LENGTHS = [(1000, 20), (37, 1), (64, 3), (999, 200), (512, 0), (1, 2)]


def refused(
    lengths: Any = LENGTHS, *, admission: Any = "reject_all", instances: Any = None, **settings: Any
) -> Result:
    """A run of 60 requests, all within half a second; all are rejected by default."""
    count = 60
    prompts, outputs = zip(*(lengths[i % len(lengths)] for i in range(count)), strict=True)
    classes = settings.pop("classes", ("batch",))
    requests = trace(
        arrival_s=np.arange(count) * 0.007_000_003,
        input_tokens=prompts,
        output_tokens=outputs,
        slo_class=[classes[i % len(classes)] for i in range(count)],
        prefix_group=[f"g{prompt}" for prompt in prompts],
        prefix_tokens=np.array(prompts) // 2,
    ).replace(empty_outputs="served")
    simulation = Simulation(
        workload=requests,
        gateway={
            "admission": admission,
            "admission_latency_s": ADMISSION_NS / 1e9,
            "routing_latency_s": ROUTING_NS / 1e9,
        },
        instances={"count": 3, "latency": linear()} if instances is None else instances,
        metrics=settings.pop("metrics", {"traced_candidates": 2}),
        **settings,
    )
    return simulate(simulation)


def test_a_rejected_request_alone_takes_one_prompt_and_its_decoding_steps() -> None:
    result = refused(admission={"kind": "token_bucket", "capacity_tokens": 3000})
    regret = result.admission_regret()
    rows = np.flatnonzero(result.requests["outcome"] == "rejected")
    assert 10 < len(rows) < 60
    assert list(regret) == REGRET_COLUMNS
    assert regret["row"].tolist() == rows.tolist()
    assert regret["request_id"].tolist() == [str(row) for row in rows]
    assert set(regret["reason"]) == {"insufficient_tokens"}
    assert set(regret["slo_class"]) == {"batch"}
    for at, row in enumerate(rows):
        prompt, output = LENGTHS[row % len(LENGTHS)]
        ttft_ns, e2e_ns = alone_ns(prompt, output)
        assert regret["unloaded_ttft_s"][at] == ttft_ns / 1e9
        assert regret["unloaded_e2e_s"][at] == e2e_ns / 1e9
        tpot_s = regret["unloaded_tpot_s"][at]
        expected = (e2e_ns - ttft_ns) / (output - 1) / 1e9 if output > 1 else np.nan
        np.testing.assert_array_equal(tpot_s, expected)
    with pytest.raises(ValueError, match="read-only"):
        regret["unloaded_ttft_s"][0] = 0
    assert repr(regret).startswith(f"<AdmissionRegret: {len(rows)} rows, columns row, request_id")
    assert pickle.loads(pickle.dumps(result)).admission_regret().summary() == regret.summary()


def test_the_better_group_counts_where_it_can_serve() -> None:
    slow = {"count": 1, "latency": linear(3), "max_model_len": 10_000}
    fast_but_small = {"count": 5, "latency": linear(), "num_kv_blocks": 10, "block_size_tokens": 16}
    lengths = [(100, 20), (500, 20), (500_000, 1)]
    for groups in ([slow, fast_but_small], [fast_but_small, slow]):
        regret = refused(lengths, instances=groups).admission_regret()
        rounded_ns = np.rint(regret["unloaded_ttft_s"][:3] * 1e9)
        assert rounded_ns[:2].tolist() == [alone_ns(100, 20)[0], alone_ns(500, 20, 3)[0]]
        assert np.isnan([regret[f"unloaded_{name}_s"][2] for name in ("ttft", "tpot", "e2e")]).all()


def test_a_rejected_request_meets_its_targets_if_it_meets_all_of_them() -> None:
    ttft_ns, e2e_ns = alone_ns(1000, 20)
    targets = [
        {"target_ttft_s": (ttft_ns + 1) / 1e9},
        {"target_ttft_s": (ttft_ns - 1) / 1e9},
        {"target_e2e_s": (e2e_ns + 1) / 1e9, "target_ttft_s": 100},
        {"target_e2e_s": (e2e_ns - 1) / 1e9, "target_ttft_s": 100},
        {"target_tpot_s": 0.0052},
        {"target_tpot_s": 0.0051},
        {},
    ]
    classes = [{"name": f"c{i}", **target} for i, target in enumerate(targets)]
    names = [*(slo_class["name"] for slo_class in classes), "unknown", "c0"]
    # The last of them fits nowhere.
    lengths = [(1000, 20)] * 8 + [(50_000_000, 1)]
    regret = refused(lengths, classes=names, slo_classes=classes).admission_regret()
    assert regret["has_targets"][:9].tolist() == [True] * 6 + [False, False, True]
    expected = [True, False, True, False, True, False, False, False, False]
    assert regret["meets_on_idle_fleet"][:9].tolist() == expected
    assert np.isnan(regret["unloaded_e2e_s"][8])
    promised = int(np.resize([1] * 6 + [0, 0, 1], 60).sum())
    met = int(np.resize(expected, 60).sum())
    summary = regret.summary()
    assert (summary["rejected"], summary["with_targets"]) == (60, promised)
    assert summary["would_meet_on_idle_fleet"] == met
    # A class's one-token requests have no TPOT to miss, as in goodput.
    single = refused([(100, 1)], classes=["c5"], slo_classes=classes).admission_regret()
    assert single["meets_on_idle_fleet"].all()


def test_no_regret_without_rejections_or_targets() -> None:
    served = refused(admission="always_admit").admission_regret()
    assert all(len(column) == 0 for column in served.values())
    assert served.summary() == {
        "rejected": 0,
        "with_targets": 0,
        "would_meet_on_idle_fleet": 0,
        "would_meet_when_all_admitted": 0,
        "regrettable": None,
    }
    assert refused().admission_regret().summary()["regrettable"] is None


def test_rejection_is_regrettable_if_targets_are_met_when_all_are_admitted() -> None:
    targets = [{"name": "batch", "target_ttft_s": 0.05}]
    settings: dict[str, Any] = {"slo_classes": targets, "instances": {"latency": linear()}}
    result = refused(admission={"kind": "token_bucket", "capacity_tokens": 9000}, **settings)
    everything = refused(admission="always_admit", **settings).requests
    regret = result.admission_regret()
    for name in ("ttft", "tpot", "e2e"):
        expected = everything[f"{name}_s"][regret["row"]]
        np.testing.assert_array_equal(regret[f"all_admitted_{name}_s"], expected)
    in_time = everything["ttft_s"][regret["row"]] <= 0.05
    assert regret["meets_when_all_admitted"].tolist() == in_time.tolist()
    summary = regret.summary()
    assert 0 < summary["would_meet_when_all_admitted"] == in_time.sum() < len(in_time)
    assert summary["would_meet_on_idle_fleet"] == len(in_time)
    assert summary["regrettable"] == in_time.mean()


def test_changes_of_the_admission_policy_do_not_reject_when_all_are_admitted() -> None:
    change = {"at_s": 0.1, "set": {"gateway.admission[token_bucket].refill_tokens_per_s": 1}}
    bucket = {"kind": "token_bucket", "capacity_tokens": 9000}
    regret = refused(admission=bucket, changes=[change]).admission_regret()
    assert len(regret["row"]) > 0
    assert not np.isnan(regret["all_admitted_e2e_s"]).any()


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("profile", profiles.NAMES)
def test_unloaded_latencies_are_those_of_sparse_requests(name: str, profile: str) -> None:
    plain = Simulation(workload=WORKLOADS[name], instances=BLIS_SERVER)
    simulation = profiles.apply(profile, plain, {})
    simulation = simulation.with_({"gateway.admission": "reject_all", "horizon_s": 1.5})
    result = simulate(simulation, seed=3)
    regret = result.admission_regret()
    arrived = result.requests.num_rows
    assert regret["row"].tolist() == list(range(arrived))
    # The same requests, so far apart that no two of them meet.
    served = simulate(simulation.replace(gateway={}, horizon_s=None), seed=3).requests
    apart = trace(
        arrival_s=np.arange(arrived) * 1000.0,
        input_tokens=served["input_tokens"][:arrived],
        output_tokens=served["output_tokens"][:arrived],
    )
    lonely = simulate(simulation.replace(workload=apart, gateway={}, horizon_s=None)).requests
    for figure in ("ttft_s", "tpot_s", "e2e_s"):
        assert regret[f"unloaded_{figure}"] == pytest.approx(lonely[figure], nan_ok=True, rel=1e-9)


def test_regret_needs_the_requests() -> None:
    streamed = refused(metrics={"streaming": True})
    with pytest.raises(UsageError, match=r"were not kept: metrics\.streaming is on"):
        streamed.admission_regret()
    result = refused()
    (forgotten,) = run_many([result.simulation])
    with pytest.raises(UsageError, match="keep_requests=True"):
        forgotten[0].admission_regret()


def test_why_says_what_a_rejected_request_missed() -> None:
    first_ms = alone_ns(1000, 20)[0] / 1e6
    text = f"on an idle fleet: ttft {first_ms:.3f} ms"
    lines = refused().why("0").splitlines()
    assert lines[-2].startswith(f"{text}, tpot ")
    assert lines[-1] == "it was never routed"
    classes = [{"name": "hard", "target_ttft_s": 0.001}, {"name": "soft", "target_ttft_s": 10}]
    result = refused(classes=["hard", "soft"], slo_classes=classes)
    assert f"{text} (target 1 ms)" in result.why("0")
    assert "it would have missed its targets" in result.why("0")
    assert "it would have met its targets" in result.why("1")
    unservable = refused([(10_000, 2)], admission="always_admit", instances={"max_model_len": 99})
    why = unservable.why("0")
    assert "rejected (unservable)" in why
    assert "no instance could have served it, not even on an idle fleet" in why
    assert "idle fleet" not in refused(admission="always_admit").why("0")


def test_a_rejected_call_that_failed_where_it_was_recorded_meets_no_target() -> None:
    requests = trace(arrival_s=[0, 1], input_tokens=[10, 10], output_tokens=[0, 5])
    simulation = Simulation(
        workload=requests,
        gateway={"admission": "reject_all"},
        slo_classes=[{"name": "standard", "target_ttft_s": 10}],
    )
    regret = simulate(simulation).admission_regret()
    assert regret["meets_on_idle_fleet"].tolist() == [False, True]
    assert regret["meets_when_all_admitted"].tolist() == [False, True]
