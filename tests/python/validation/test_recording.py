"""Recordings of production are met by the system that made them, and by no other."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import trials
from support.production_runs import STEP, Lengths, capacity_per_s, offered, recorded, served_by

import spillway
from spillway import ConfigError, Simulation, TraceError, gateway, simulate, workload
from spillway.config import acceptance
from spillway.config.yaml import to_yaml
from spillway.validation.errors_of_runs import BLOCKS, spread_of
from spillway.validation.recording import TOLERANCES, Report, validate
from spillway.validation.replayed import of_recording

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spillway.data.recording import Recording

COEFFICIENTS = tuple(STEP)
REQUESTS = 2000
SEEDS = 3  # fewer than by default, which takes longer
EVERY = 20  # cases between two lines of progress


@dataclasses.dataclass(frozen=True)
class Twin:
    """A production system of random servers and load, and what it has recorded.

    `model_cv`: the service noise of the configuration, which need not be that of the system.
    """

    step: Mapping[str, float]
    model_cv: float
    factor: float
    recording: Recording

    def report(self, **factors: float) -> Report:
        """The verdict on a configuration whose coefficients are off by these factors."""
        step = {name: value * factors.get(name, 1.0) for name, value in self.step.items()}
        return validate(served_by(step, cv=self.model_cv), self.recording, seeds=SEEDS)


def twin(seed: int) -> Twin:
    rng = np.random.default_rng(77_000 + seed)
    cv = float(rng.choice([0.05, 0.1, 0.2]))
    model_cv = float(rng.choice([cv, cv, 0.0, 0.1]))
    step = {
        "beta0_us": float(rng.uniform(4000, 9000)),
        "beta_prefill_us": float(rng.uniform(15, 60)),
        "beta_decode_us": float(rng.uniform(60, 300)),
    }
    lengths = Lengths(
        (float(rng.uniform(4.5, 6.5)), float(rng.uniform(0.3, 0.9))),
        (float(rng.uniform(3.8, 5.2)), float(rng.uniform(0.3, 0.7))),
    )
    rate = capacity_per_s(step, lengths) * float(rng.uniform(0.2, 0.9))
    recording = recorded(served_by(step, cv=cv), offered(rate, REQUESTS, seed, lengths), seed)
    return Twin(step, model_cv, float(rng.choice([1.15, 1 / 1.15])), recording)


def judge(seeds: range) -> Counter[str]:
    """The verdicts on the right configuration, and on some that are 15% off."""
    found = Counter[str]()
    for seed in seeds:
        case = twin(seed)
        right = case.report()
        found[f"right: {right.verdict}"] += 1
        wrong = case.report(**dict.fromkeys(COEFFICIENTS, case.factor))
        found[f"all off: {wrong.verdict}"] += 1
        known = {row.name.rpartition(".")[2]: row.verdict for row in right.coefficients}
        name = COEFFICIENTS[seed % len(COEFFICIENTS)]
        state = "not identified" if known[name] == "not identified" else "identified"
        found[f"{state}, off: {case.report(**{name: case.factor}).verdict}"] += 1
        if (seed + 1) % EVERY == 0 or seed == seeds[-1]:
            print(f"{seed + 1} recordings:", dict(sorted(found.items())), flush=True)
    return found


def check(found: Counter[str], cases: int) -> None:
    assert found["right: not met"] <= 0.05 * cases, found
    assert found["all off: not met"] >= 0.95 * cases, found
    identified = {name: n for name, n in found.items() if name.startswith("identified")}
    assert found["identified, off: not met"] >= 0.95 * sum(identified.values()), found
    assert found["identified, off: met"] + found["not identified, off: met"] <= 0.05 * cases, found
    assert found["right: met"] >= cases / 2, found


@pytest.mark.slow
def test_false_alarms_are_rare_and_deviations_are_found() -> None:
    cases = trials(60)
    check(judge(range(len(cases))), len(cases))


@pytest.mark.long
def test_two_hundred_recordings() -> None:
    """At most 5% of false alarms, and at least 95% of coefficients off by 15% are found.

    Of coefficients that the recording identifies; of the others, it must not say that they are met.
    """
    check(judge(range(200)), 200)


def quick(simulation: Simulation | None = None, **settings: Any) -> Recording:
    """A recording of a moderate load."""
    system = simulation or served_by()
    return recorded(system, offered(10, settings.pop("requests", 800), 1), 1)


def by_name(report: Report) -> dict[str, Any]:
    return {row.name: row for row in (*report.figures, *report.coefficients)}


def test_a_recording_is_met_by_its_own_system() -> None:
    report = validate(served_by(), quick(requests=REQUESTS))
    assert report.verdict == "met", report.text()
    rows = by_name(report)
    assert set(rows) == {*TOLERANCES} - {"coefficients"} | {f"mean.{name}" for name in STEP}
    assert abs(rows["p50_ttft_ms"].error) < rows["p50_ttft_ms"].margin < 0.1
    assert rows["mean.beta0_us"].recorded == pytest.approx(STEP["beta0_us"], rel=0.02)
    assert rows["shed"].recorded == rows["shed"].simulated == 0
    assert rows["cache_hit_rate"].verdict == "not applicable"
    assert "does not state cached tokens" in rows["cache_hit_rate"].reason
    assert "verdict: met" in report.text()
    assert report.to_dict()["figures"]["p50_ttft_ms"]["verdict"] == "met"


@pytest.mark.slow
def test_a_low_load_does_not_identify_the_work_of_a_batch() -> None:
    idle = recorded(served_by(), offered(0.3, 600, 2), 2)
    report = validate(served_by(), idle)
    rows = by_name(report)
    assert rows["mean.beta_decode_us"].verdict == "not identified"
    assert "too little beside noise" in rows["mean.beta_decode_us"].reason
    assert report.verdict == "undecided"
    assert "mean.beta_decode_us" in report.reason
    others = [name for name in STEP if rows[f"mean.{name}"].verdict == "not identified"]
    unjudged = validate(served_by(), idle, unjudged=others)
    assert unjudged.verdict == "met"
    assert set(unjudged.unjudged) == {f"mean.{name}" for name in others}


def test_few_requests_decide_nothing() -> None:
    report = validate(served_by(), quick(requests=150))
    assert report.verdict == "undecided"
    assert {row.verdict for row in report.coefficients} == {"not identified"}
    assert "fewer than 200 served requests" in report.coefficients[0].reason


@pytest.mark.slow
def test_shed_requests_are_compared() -> None:
    guarded = served_by(gateway=gateway.Gateway(
        admission=gateway.TokenBucket(capacity_tokens=5000, refill_tokens_per_s=2500)
    ))  # fmt: skip
    recording = quick(guarded, requests=REQUESTS)
    assert 0.1 < recording.failed.mean() < 0.9
    same = by_name(validate(guarded, recording))["shed"]
    assert same.verdict == "met"
    assert same.recorded == pytest.approx(recording.failed[200:].mean(), abs=0.05)
    open_to_all = validate(served_by(), recording)
    assert by_name(open_to_all)["shed"].verdict == "not met"
    assert by_name(open_to_all)["requests_per_min"].verdict == "not met"
    assert open_to_all.verdict == "not met"
    assert "shed -" in open_to_all.reason


@pytest.mark.slow
def test_tolerances_decide() -> None:
    recording = quick(requests=REQUESTS)
    wrong = served_by({**STEP, "beta0_us": STEP["beta0_us"] * 1.15})
    assert by_name(validate(wrong, recording))["p50_tpot_ms"].verdict == "not met"
    wide = validate(wrong, recording, tolerances={"p50_tpot_ms": 0.3})
    assert by_name(wide)["p50_tpot_ms"].verdict == "met"
    assert wide.verdict == "not met"  # by its coefficient
    likely = max(wide.coefficients, key=lambda row: row.explains or 0)
    assert likely.name == "mean.beta0_us"
    assert likely.error == pytest.approx(0.15, abs=0.03)


def test_figures_that_a_recording_does_not_state_are_not_applicable() -> None:
    recording = quick()
    blind = dataclasses.replace(recording, ttft_s=np.full(recording.num_requests, np.nan))
    rows = by_name(validate(served_by(), blind))
    assert rows["p50_ttft_ms"].verdict == rows["p90_tpot_ms"].verdict == "not applicable"
    assert rows["p50_ttft_ms"].reason == "the recording does not state TTFT"


@pytest.mark.slow
def test_cached_tokens_are_predicted_from_the_hashes_of_prompts(tmp_path: Path) -> None:
    """Cached tokens that are replayed as recorded prove nothing; hashes predict them."""
    rng = np.random.default_rng(3)
    requests = 800
    groups = rng.integers(0, 6, requests)
    trace = spillway.trace(
        arrival_s=np.cumsum(rng.exponential(0.1, requests)),
        input_tokens=rng.integers(600, 1200, requests),
        output_tokens=rng.integers(20, 120, requests),
        prefix_group=[str(group) for group in groups],
        prefix_tokens=np.full(requests, 512),
    )
    system = served_by()
    result = simulate(system.replace(workload=trace))
    rate = float(result.summary()["cache_hit_rate"] or 0)
    assert rate > 0.3
    cached = np.rint(rate * np.asarray(result.requests["input_tokens"])).astype(np.int64)
    recording = dataclasses.replace(recorded(system, trace, 3), cached_tokens=cached)
    alone = by_name(validate(system, recording))["cache_hit_rate"]
    assert alone.verdict == "not applicable"
    assert "--requests" in alone.reason
    file = tmp_path / "requests.csv"
    spillway.traffic.write(trace, file)
    row = by_name(validate(system, recording, requests=file))["cache_hit_rate"]
    assert row.verdict == "met"
    assert row.simulated == pytest.approx(rate, abs=0.02)
    cold = system.with_({"instances[0].kv_cache.prefix_caching": False})
    assert by_name(validate(cold, recording, requests=file))["cache_hit_rate"].verdict == "not met"
    other = spillway.trace(
        arrival_s=[0, 1], input_tokens=[5, 5], output_tokens=[1, 1]
    )  # fmt: skip
    spillway.traffic.write(other, file)
    with pytest.raises(TraceError, match=r"must hold the 800 requests of production\.csv, not 2"):
        validate(system, recording, requests=file)


def test_tenants_keep_their_class_of_service() -> None:
    client = workload.Client(tenant="default", slo_class="critical")
    simulation = served_by(workload=workload.Synthetic(num_requests=1, clients=[client]))
    notes: list[str] = []
    found = of_recording(simulation, quick(), None, notes)
    trace = found.simulation.workload
    assert isinstance(trace, workload.Trace)
    assert trace._columns()["slo_classes"] == ["critical"]
    assert notes == []


@pytest.mark.slow
def test_a_client_at_its_limit_is_replayed_at_its_limit() -> None:
    """In a closed loop the send times follow from the service, so slow servers get a lower rate."""
    system = served_by(count=1)
    trace = offered(100, 1200, 6).replace(max_in_flight=16, open_loop_requests=0)
    recording = dataclasses.replace(recorded(system, trace, 6), client_max_in_flight=16)
    same = validate(system, recording)
    assert {row.verdict for row in same.figures} <= {"met", "not applicable"}, same.text()
    slow = validate(served_by({name: 1.3 * of for name, of in STEP.items()}, count=1), recording)
    rows = by_name(slow)
    assert rows["requests_per_min"].verdict == rows["p50_tpot_ms"].verdict == "not met"


def test_retries_are_those_of_the_recording() -> None:
    again = workload.Reaction(retries=[workload.Retry()])
    report = validate(served_by(reaction=again), quick())
    assert "retries and copies of reaction are left out: they are in the recording" in report.notes
    submits = served_by(changes=[{"at_s": 1, "submit": [{"input_tokens": 5}]}])
    with pytest.raises(ConfigError, match=re.escape("changes[0].submit")):
        validate(submits, quick())


# --- worker files ---------------------------------------------------------------------------------


def workers(tmp_path: Path, *rows: str) -> Path:
    file = tmp_path / "workers.csv"
    file.write_text("\n".join(["time_s,group,ready", *rows]) + "\n")
    return file


@pytest.mark.slow
def test_workers_come_and_go_as_recorded(tmp_path: Path) -> None:
    """Half of the time there are three instances, then one."""
    trace = offered(10, 1600, 4)
    changing = served_by(count=3).with_({
        "fleet.startup_s": 0.0,
        "fleet.initial_instances": 3,
        "fleet.target_instances": 3,
    }).replace(changes=[{"at_s": 80.0, "set": {"fleet.target_instances": 1}}])  # fmt: skip
    system = changing.replace(workload=trace)
    recording = recorded(changing, trace, 4)
    begin_s = float(np.asarray(simulate(system).requests["arrival_s"])[0])
    file = workers(tmp_path, "-5,0,2", "0,0,3", f"{80 - begin_s},0,1")
    report = validate(served_by(count=2), recording, workers=file)
    assert report.verdict == "met", report.text()
    assert f"instances[0].count is 3 instead of 2: {file} has as many" in report.notes
    without = by_name(validate(served_by(count=2), recording))
    assert without["p90_tpot_ms"].verdict == "not met"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1,0,2"], "time_s = 1: must follow a row at or before 0 for each group; none for 0"),
        (["0,0,2", "5,0,1", "4,0,2"], "line 4, time_s = 4: must be >= 5, the time of the row"),
        (["0,1,2"], "line 2, group = '1': must be a whole number >= 0 and <= 0"),
        (["0,0,many"], "line 2, ready = 'many': must be a whole number >= 0 and <= 100000"),
        (["soon,0,1"], "line 2, time_s = 'soon': must be a number (s)"),
        ([], "must have a row at or before 0 for each group; none for 0"),
    ],
)
def test_a_wrong_file_of_workers_is_refused(rows: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        validate(served_by(), quick(), workers=workers(tmp_path, *rows))
    assert "workers.csv" in str(caught.value)


def test_the_columns_of_workers_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "workers.csv"
    file.write_text("time,ready\n0,1\n")
    with pytest.raises(ConfigError, match="time_s, group missing"):
        validate(served_by(), quick(), workers=file)


def test_groups_join_in_listed_order(tmp_path: Path) -> None:
    one = served_by().instances[0]
    two = served_by(instances=[one, one])
    recording = quick(two)
    assert validate(two, recording, workers=workers(tmp_path, "0,0,2", "0,1,2", "30,1,1")).figures
    with pytest.raises(ConfigError, match="must be 2 while group 1 has ready instances"):
        validate(two, recording, workers=workers(tmp_path, "0,0,1", "0,1,2"))


# --- records of spillway serve --------------------------------------------------------------------


def live_record(system: Simulation, file: Path) -> None:
    """A session with requests from outside, as `spillway serve` records it."""
    rng = np.random.default_rng(5)
    empty = system.replace(workload=workload.Synthetic(num_requests=0))
    session = spillway.start(empty, 0, open_ended=True, record=file)
    now_s = 0.0
    for gap_s in rng.exponential(0.1, 300):
        now_s += gap_s
        session.advance(until_s=now_s)
        session.submit(
            input_tokens=int(rng.integers(50, 800)), output_tokens=int(rng.integers(10, 200))
        )
    session.advance(until_s=now_s + 60)
    session._record.close()


@pytest.mark.slow
def test_live_records_are_judged(tmp_path: Path) -> None:
    journal, file = tmp_path / "live.jsonl", tmp_path / "live.yaml"
    live_record(served_by(), journal)
    spillway.dump(spillway.session.recorded(journal), file)
    for record in (journal, file):
        report = validate(served_by(), record, seeds=2)
        assert report.requests == 300
        assert {row.verdict for row in report.figures} <= {"met", "not applicable"}
        slow = served_by({**STEP, "beta0_us": 2 * STEP["beta0_us"]})
        assert validate(slow, record, seeds=2).verdict == "not met"
    with pytest.raises(ConfigError, match="is not for a record"):
        validate(served_by(), file, requests=journal)


# --- the stored verdict ---------------------------------------------------------------------------


def test_a_verdict_is_stored_beside_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    wrong = served_by({**STEP, "beta0_us": 1.3 * STEP["beta0_us"]}, cv=0)
    spillway.dump(wrong.replace(workload=offered(10, 5, 1)).replace(
        workload=workload.Synthetic(num_requests=300, requests_per_s=10)), file)  # fmt: skip
    report = validate(file, quick(requests=REQUESTS))
    assert report.verdict == "not met"
    assert report.store() == [tmp_path / "fleet.acceptance.yaml"]
    (entry,) = acceptance.read(tmp_path / "fleet.acceptance.yaml")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry["date"])
    assert entry["server"] == acceptance.fingerprint(wrong.instances[0])
    assert entry["recording"]["sha256"] == f"{1:064x}"
    judged = spillway.load(file)
    assert "acceptance: not met on 20" in judged.instances[0].provenance
    (note,) = [text for text in simulate(judged).notes() if "refutes" in text]
    assert "p50_tpot_ms +" in note
    assert any("refutes" in text for text in simulate(judged, seeds=2).notes())
    # Other step times are another server.
    text = file.read_text().replace(f"beta0_us: {1.3 * STEP['beta0_us']}", "beta0_us: 6000.0")
    file.write_text(text)
    assert "acceptance" not in spillway.load(file).instances[0].provenance


def test_a_verdict_is_stored_beside_the_profile_of_a_server(tmp_path: Path) -> None:
    group = served_by(cv=0).instances[0]
    document = {"kind": "server_profile", "version": 1, "instance": group.to_dict(), "runs": [1]}
    server = tmp_path / "server.yaml"
    server.write_text(to_yaml(document))
    (tmp_path / "one").mkdir()
    for folder, reference in ((tmp_path, "server.yaml"), (tmp_path / "one", "../server.yaml")):
        text = f"instances: [{{server: {reference}, count: 2}}]\nrouter: least_loaded\n"
        (folder / "fleet.yaml").write_text(text)
    report = validate(tmp_path / "fleet.yaml", quick(requests=REQUESTS))
    assert report.store() == [tmp_path / "server.acceptance.yaml"]
    found = spillway.load(tmp_path / "one" / "fleet.yaml").instances[0].provenance
    assert "fitted to 1 measured run; acceptance: met on 20" in found
    # A setting of the instance that overrides the server's makes it another.
    text = "instances: [{server: server.yaml, max_num_seqs: 3}]\n"
    (tmp_path / "fleet.yaml").write_text(text)
    assert "acceptance" not in spillway.load(tmp_path / "fleet.yaml").instances[0].provenance


def entry_of(verdict: str, sha256: str = "a", date: str = "2026-11-27", server: str = "s") -> Any:
    return {
        "verdict": verdict, "date": date, "server": server, "configuration": "c", "reason": "",
        "recording": {"sha256": sha256},
    }  # fmt: skip


def test_verdicts_of_several_recordings_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "server.acceptance.yaml"
    group = served_by().instances[0]
    own = acceptance.fingerprint(group)
    acceptance.write(file, [entry_of("not met", server=own), entry_of("met", "b", server=own)])
    assert acceptance.marked(group, file).provenance.endswith("not met on 2026-11-27")
    acceptance.write(file, [entry_of("undecided", server=own)])  # does not replace a decided one
    assert [entry["verdict"] for entry in acceptance.read(file)] == ["not met", "met"]
    acceptance.write(file, [entry_of("met", date="2026-12-01", server=own)])
    assert acceptance.marked(group, file).provenance.endswith("met on 2026-12-01")
    again = acceptance.marked(acceptance.marked(group, file), file)
    assert again.provenance.count("acceptance") == 1
    acceptance.write(file, [entry_of("met", server="another")])
    assert [entry["server"] for entry in acceptance.read(file)] == ["another"]
    file.write_text("kind: acceptance\nversion: 1\nverdicts: [7]\n")
    with pytest.raises(ConfigError, match="delete it, and judge again"):
        acceptance.read(file)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tolerances": {"p51": 0.1}}, "tolerances[p51] = 0.1: is no figure; must be one of"),
        ({"tolerances": {"shed": 0}}, "tolerances[shed] = 0: must be > 0 and <= 1"),
        ({"seeds": 1}, "seeds = 1: must be >= 2 and <= 100"),
        ({"seed": -1}, "seed = -1: must be >= 0"),
        ({"warm_up_s": -1.0}, "warm_up_s = -1: must be >= 0 (s)"),
        ({"warm_up_s": 1e6}, "when the last request was sent"),
        ({"unjudged": ["other"]}, "unjudged = 'other': must be one of mean.beta0_us"),
    ],
)
def test_wrong_arguments_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        validate(served_by(), quick(requests=20), **settings)


def test_errors_of_dependent_blocks_are_larger() -> None:
    """The standard error of a mean, and what neighbors that resemble each other do to it."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(BLOCKS)
    left = (values.sum() - values) / (BLOCKS - 1)
    spread = spread_of(float(values.mean()), left, np.zeros(2))
    plain = values.std(ddof=1) / np.sqrt(BLOCKS)
    assert plain <= spread.error < 1.7 * plain
    rising = np.sort(values)
    left = (rising.sum() - rising) / (BLOCKS - 1)
    slow = spread_of(float(rising.mean()), left, np.zeros(2))
    assert slow.error > 2 * plain
    assert slow.dof < 6
    between = spread_of(0.0, np.zeros(BLOCKS), np.array([-1.0, 1.0]))
    assert between.error == pytest.approx(np.sqrt(2 * 1.5))


@pytest.mark.slow
def test_the_margin_covers_the_noise_of_queues() -> None:
    """Near saturation, TTFT of independent runs differs by more than single requests show."""
    step, lengths = STEP, Lengths()
    trace = offered(0.97 * capacity_per_s(step, lengths), 1500, 7, lengths)
    rejected = 0
    for seed in range(6):
        rejected += validate(served_by(), recorded(served_by(), trace, seed)).verdict == "not met"
    assert rejected == 0
