"""Comparison with recordings of vLLM's own scheduler, step by step.

A folder holds `cases.jsonl`, one case a line (the engine, the duration of a step, the requests),
and `recordings-vllm-VERSION.jsonl` with what vLLM's classes of that version decided: at every call
of the scheduler the tokens of each request, admissions and preemptions, the free blocks and both
queues; and when every request got its tokens. Files may be compressed (`.gz`).
"""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway import _core, instance, workload
from spillway.config.progress import reporting
from spillway.files.error import TraceError
from spillway.systems.vllm import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spillway.config.progress import Progress

__all__ = ["CaseReport", "Difference", "Report", "validate"]

_EXTRA = {
    "long_prefill_token_threshold_adaptive": "long_prefill_token_threshold_adaptive",
    "prefill_schedule_interval": "prefill_schedule_interval",
    "max_num_active_seqs": "max_num_active_seqs",
}
_FIELDS = (
    "planned_ns",
    "start_ns",
    "end_ns",
    "scheduled",
    "admitted",
    "preempted",
    "drafts",
    "free_blocks",
    "waiting",
    "running",
    "finished",
)
_OF_REQUESTS = ("tokens_ns", "first_token_ns", "num_tokens", "finished_ns", "aborted_ns")
_OF_CASES = ("id", "engine", "step_ns", "requests")
_OF_RECORDINGS = ("id", "steps", "requests")


@dataclass(frozen=True)
class Steps:
    """The steps of a run and what its requests got, in the form of a recording.

    Attributes
    ----------
    steps : list of dict
        Each call of the scheduler that gave tokens or preempted a request.
    requests : dict
        What is known of each request: `tokens_ns`, the instant of each output token;
        `first_token_ns` and `num_tokens`, None and 0 if there was none; `finished_ns`;
        `aborted_ns`.

    """

    steps: list[dict[str, Any]]
    requests: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """The first difference of a run.

    Attributes
    ----------
    step : int or None
        Number of the step, from 0; None: all steps are equal, and a request is not.
    field : str
        What differs, e.g. "scheduled"; "steps": their number; or a figure of a request.
    expected, found : str
        The recorded value and that of the run.

    """

    step: int | None
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Say what differs, in a line."""
        where = "" if self.step is None else f"step {self.step}, "
        return f"{where}{self.field}: {self.expected} recorded, {self.found} here"


@dataclass(frozen=True)
class CaseReport:
    """The comparison of one case with one version."""

    case: str
    version: str
    difference: Difference | None = None
    unsupported: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether every step and every request is equal."""
        return self.difference is None and self.unsupported is None


@dataclass(frozen=True)
class Report:
    """The comparison of all cases."""

    cases: tuple[CaseReport, ...]

    @property
    def agrees(self) -> bool:
        """Whether there are cases, and all agree."""
        return bool(self.cases) and all(case.agrees for case in self.cases)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return, by version, how many cases agree, and of how many."""
        of = defaultdict(list)
        for case in self.cases:
            of[case.version].append(case.agrees)
        return {version: (sum(agree), len(agree)) for version, agree in of.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        return {
            "agrees": self.agrees,
            "versions": {
                version: {"agreeing": agreeing, "cases": cases}
                for version, (agreeing, cases) in self.counts().items()
            },
            "cases": [asdict(case) | {"agrees": case.agrees} for case in self.cases],
        }

    def table(self) -> str:
        """Return the report as text: a line per version, and one per case that differs."""
        lines = []
        for version, (agreeing, cases) in self.counts().items():
            lines.append(f"vLLM {version}: {agreeing:,} of {cases:,} cases agree in every step")
            lines += [
                f"    {case.case}: {case.unsupported or case.difference}"
                for case in self.cases
                if case.version == version and not case.agrees
            ]
        return "\n".join(lines)


def validate(
    directory: str | Path,
    *,
    run: Callable[[Mapping[str, Any], str], Steps | str] | None = None,
    progress: Progress = False,
) -> Report:
    """Run every recorded case of a folder and compare each step with the recorded one.

    Parameters
    ----------
    directory
        The folder with the cases and the recordings.
    run
        What runs a case under a version, e.g. "0.33.0", and returns its steps, or what it lacks for
        the case; None: the simulator (`product`).
    progress
        As for `run_many`, with finished cases.

    Raises
    ------
    TraceError
        The folder has no cases or no recordings, or one of them cannot be read.

    """
    found = list(recorded(directory))
    reports: list[CaseReport] = []
    with reporting(progress, "cases") as report:
        for case, version, recording in found:
            steps = (run or product)(case, version)
            if isinstance(steps, str):
                reports.append(CaseReport(case["id"], version, unsupported=steps))
            else:
                difference = first_difference(recording, steps)
                reports.append(CaseReport(case["id"], version, difference))
            if report is not None:
                report(len(reports), len(found), case["id"])
    return Report(tuple(reports))


def recorded(directory: str | Path) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Read a folder: each case with a version and its recording."""
    folder = Path(directory)
    stem = "recordings-vllm-"
    files = sorted(path for path in folder.glob(f"{stem}*.jsonl*") if path.is_file())
    cases = [path for path in (folder / "cases.jsonl", folder / "cases.jsonl.gz") if path.exists()]
    if not cases or not files:
        raise TraceError(
            f"{folder} must hold cases.jsonl and {stem}VERSION.jsonl, plain or as .gz; "
            "it lacks " + (f"{stem}VERSION.jsonl" if cases else "cases.jsonl")
        )
    by_id = {case["id"]: case for case in _lines(cases[0], _OF_CASES)}
    for path in files:
        version = path.name.removeprefix(stem).removesuffix(".gz").removesuffix(".jsonl")
        for recording in _lines(path, _OF_RECORDINGS):
            if recording["id"] not in by_id:
                raise TraceError(f"{path}: {recording['id']!r} is not among the cases")
            yield by_id[recording["id"]], version, recording


def _lines(path: Path, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}, line {number}"
        parsed = _parsed(line, where)
        if missing := [key for key in keys if key not in parsed]:
            raise TraceError(f"{where}: lacks {', '.join(missing)}")
        yield parsed


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{where}: no JSON: {error}") from None
    return parsed


def first_difference(recording: Mapping[str, Any], run: Steps) -> Difference | None:
    """Return the first field of the first step that differs; then figures of requests."""
    for number, (expected, found) in enumerate(zip(recording["steps"], run.steps, strict=False)):
        for field in _FIELDS:
            if expected.get(field) != found.get(field):
                return Difference(
                    number, field, _text(expected.get(field)), _text(found.get(field))
                )
    if len(recording["steps"]) != len(run.steps):
        return Difference(None, "steps", str(len(recording["steps"])), str(len(run.steps)))
    for name, figures in recording["requests"].items():
        found, tokens = run.requests[name], figures["tokens_ns"]
        counted = {"first_token_ns": next(iter(tokens), None), "num_tokens": len(tokens)}
        expected = {**counted, **figures}
        for field in _OF_REQUESTS:
            if field in found and expected.get(field) != found[field]:
                where = f"{field} of {name}"
                return Difference(None, where, _text(expected.get(field)), _text(found[field]))
    return None


def _text(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."


# The simulator


def product(case: Mapping[str, Any], version: str) -> Steps | str:
    """Simulate a case under the rules of a version, with a log of the steps."""
    engine = case["engine"]
    unknown = engine.get("extra", {}).keys() - _EXTRA.keys()
    if unknown:
        return ", ".join(sorted(unknown))
    return logged(simulation_of(case, version), [request["id"] for request in case["requests"]])


def logged(simulation: _core.cluster.Simulation, names: list[str]) -> Steps:
    """Simulate one engine with a log of its steps; `names` are those of the requests."""
    output, (log,) = _core.cluster.log_steps(simulation, 0)
    has_drafts = simulation.instances[0].speculative_decoding.num_drafts > 0
    steps = [_step(entry, names, has_drafts) for entry in log]
    record = output["record"]
    first_ns = np.rint(1e9 * (record.column("arrival_s") + record.column("ttft_s")))
    requests: dict[str, dict[str, Any]] = {
        name: {"first_token_ns": None if np.isnan(at) else int(at), "num_tokens": int(tokens)}
        for name, at, tokens in zip(names, first_ns, record.column("output_tokens"), strict=True)
    }
    for step in steps:
        for name in step["finished"]:
            requests[name]["finished_ns"] = step["end_ns"]
    return Steps(steps, requests)


def _step(entry: dict[str, Any], names: list[str], has_drafts: bool) -> dict[str, Any]:
    step = dict(entry)
    drafts = step.pop("drafts")
    if has_drafts:
        step["drafts"] = {names[row]: tokens for row, tokens in drafts}
    step["scheduled"] = [[names[row], tokens] for row, tokens in entry["scheduled"]]
    entered = entry["admitted"] + step.pop("readmitted")
    step["admitted"] = [[names[row], tokens] for row, tokens in entered]
    for field in ("preempted", "running", "finished"):
        step[field] = [names[row] for row in entry[field]]
    return step


def simulation_of(case: Mapping[str, Any], version: str) -> _core.cluster.Simulation:
    """Return a case as a simulation under the rules of a version."""
    engine, requests = case["engine"], case["requests"]
    by_priority = engine["policy"] == "priority"
    per_step_us = case["step_ns"]["constant"] / 1000
    per_token_us = case["step_ns"]["per_token"] / 1000
    group = instance.InstanceGroup(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_model_len=engine["max_model_len"],
        long_prefill_token_threshold=engine["long_prefill_token_threshold"],
        chunked_prefill=engine["chunked_prefill"],
        block_size_tokens=engine["block_size"],
        num_kv_blocks=engine["num_gpu_blocks"] - 1,  # without the null block
        kv_cache=instance.KvCache(
            prefix_caching=engine["prefix_caching"],
            reserve_full_prompt=engine["reserve_full_isl"],
            watermark=engine["watermark"],
        ),
        scheduler=instance.PriorityFcfs(victim="lowest_priority")
        if by_priority
        else instance.Fcfs(),
        latency=instance.Linear(
            alpha0_us=0,
            alpha_input_us=0,
            alpha_output_us=0,
            beta0_us=per_step_us,
            beta_prefill_us=per_token_us,
            beta_decode_us=per_token_us,
        ),
        async_scheduling=engine["async_scheduling"],
        speculative_decoding=instance.SpeculativeDecoding(
            num_drafts=engine["num_spec_tokens"], method=engine["spec_method"] or "ngram"
        ),
        **{_EXTRA[name]: value for name, value in engine.get("extra", {}).items()},
    )
    priorities = sorted({request.get("priority", 0) for request in requests})
    # A client that withdraws is a tenant, because patience is a tenant's.
    patience = {
        request["id"]: (request["abort_ns"] - request["arrival_ns"]) * 1e-9
        for request in requests
        if "abort_ns" in request
    }
    return _core.cluster.Simulation(
        workload=_trace(requests, priorities),
        instances=rules.applied(group, version),
        slo_classes=[
            workload.SloClass(name=f"priority {priority}", priority=-priority)
            for priority in priorities
        ],
        tenants=[
            workload.Tenant(name=name, reaction=workload.Reaction(timeout_s=span_s))
            for name, span_s in patience.items()
        ],
    )


def _trace(requests: list[dict[str, Any]], priorities: list[int]) -> workload.Trace:
    lengths: dict[str, set[int]] = defaultdict(set)
    for request in requests:
        lengths[f"out:{request['id']}"].add(request["output"])
        for name, tokens in request["prompt"]:
            lengths[name].add(tokens)
    cuts = {name: sorted(all_lengths) for name, all_lengths in lengths.items()}
    numbers: dict[tuple[str, int], int] = {}

    # Two prompts share the shorter of two segments of a name, so these are cut at all lengths.
    def parts(name: str, tokens: int) -> Iterator[tuple[int, int]]:
        ends = [0, *(cut for cut in cuts[name] if cut <= tokens)]
        for begin, end in itertools.pairwise(ends):
            yield numbers.setdefault((name, end), len(numbers) + 1), end - begin

    begin, content, tokens, answers, prompts = [0], [], [], [], []
    for request in requests:
        of_prompt = [part for segment in request["prompt"] for part in parts(*segment)]
        content += [number for number, _ in of_prompt]
        tokens += [length for _, length in of_prompt]
        begin.append(len(content))
        prompts.append(sum(length for _, length in of_prompt))
        answer = list(parts(f"out:{request['id']}", request["output"]))
        if len(answer) > 1:
            raise TraceError(f"{request['id']}: a prompt repeats a part of its answer")
        answers.append(answer[0][0])
    accepts = [request.get("accept", []) for request in requests]
    accepted = [drafts for accept in accepts for drafts in accept]
    accepted_begin = [0, *itertools.accumulate(map(len, accepts))] if accepted else []
    names = [request["id"] for request in requests]
    is_patient = ["abort_ns" not in request for request in requests]
    tenants = ["patient", *(name for name, patient in zip(names, is_patient, strict=True)
                            if not patient)]  # fmt: skip
    return _core.workload.make_trace(
        arrival_ns=[request["arrival_ns"] for request in requests],
        input_tokens=prompts,
        output_tokens=[request["output"] for request in requests],
        tenant=[
            0 if patient else tenants.index(name)
            for name, patient in zip(names, is_patient, strict=True)
        ],
        tenants=tenants,
        slo_class=[priorities.index(request.get("priority", 0)) for request in requests],
        slo_classes=[f"priority {priority}" for priority in priorities],
        segment_begin=np.array(begin, dtype=np.uint32),
        segment_content=np.array(content, dtype=np.uint64),
        segment_tokens=np.array(tokens, dtype=np.uint32),
        request_id=names,
        file="",
        answer=np.array(answers, dtype=np.uint64),
        accepted_begin=np.array(accepted_begin, dtype=np.uint32),
        accepted=np.array(accepted, dtype=np.uint8),
    )
