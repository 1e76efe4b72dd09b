"""Calls that take long, for processes that are interrupted."""

from __future__ import annotations

import functools
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from support.blis_scenario import SCENARIO
from support.paths import ROOT
from support.production_runs import STEP, offered, recorded, served_by
from support.study_problems import SMALL_SPACE, overloaded
from support.vllm_cases import write_recordings

import spillway
from spillway import Simulation, Study, gateway, instance, policies, traffic, workload
from spillway.calibration import calibrate, intervals
from spillway.envs import GatewayEnv, GatewayVectorEnv
from spillway.files.traces import write_csv
from spillway.instance import Server
from spillway.study import Objective, solvers, sweeps
from spillway.study.files import run_sweep
from spillway.testing import check_policy
from spillway.validation import blis, real, vllm_scheduler
from spillway.validation.recording import validate as validate_recording

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCRIPT = """
import importlib, os, pkgutil, signal, sys
from pathlib import Path
import spillway
signal.signal(signal.SIGINT, signal.default_int_handler)
from support import long_calls
# An import that is interrupted would leave half a package behind.
for module in pkgutil.walk_packages(spillway.__path__, "spillway."):
    if module.name.split(".")[1] not in ("cli", "presets", "scenarios"):
        importlib.import_module(module.name)
said, times, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
call = long_calls.CASES[name](Path.cwd())
for _ in range(times):
    ended = "?"
    try:
        os.write(said, b".")
        while True:
            call()
    except KeyboardInterrupt:
        ended = "i"
    os.write(said, ended.encode())
os._exit(0)  # without waiting for the threads of an executor
"""
"""Makes a call again and again, and says so, and also what an interruption came to."""


def large(requests: int = 200_000, **settings: Any) -> Simulation:
    """A run of a second, or of as many requests."""
    described = {"workload": workload.Synthetic(num_requests=requests, requests_per_s=20)}
    return Simulation(**(described | settings))


class Everything(policies.Admission):
    """Admits every request, after some work in Python."""

    def decide(self, request: policies.Request, view: policies.View) -> bool:
        return sum(range(2000)) + request.input_tokens > len(view)


LIMITED = {"gateway": gateway.Gateway(limit=gateway.FixedLimit(max_in_flight=64))}


def in_python(requests: int = 200_000) -> Simulation:
    return large(requests, gateway=gateway.Gateway(admission=Everything))


def steps(result: spillway.Result) -> float:
    """An objective in Python."""
    return sum(result.requests["ttft_s"].tolist())


def nothing(*_: object) -> None:
    """A function that listens to progress."""


def given(
    prepare: Callable[[Path], Any], call: Callable[[Any], object]
) -> Callable[[Path], Callable[[], object]]:
    """A call with what is prepared once."""
    return lambda folder: functools.partial(call, prepare(folder))


def trace(requests: int = 3000) -> Any:
    rng = np.random.default_rng(1)
    return spillway.trace(
        arrival_s=np.cumsum(rng.exponential(0.1, requests)),
        input_tokens=rng.integers(1, 2000, requests),
        output_tokens=rng.integers(1, 200, requests),
    )


def turns() -> Any:
    """Requests of users, each prompt the continuation of the one before."""
    rng = np.random.default_rng(2)
    requests = []
    for user in range(40):
        at_s, blocks = 0.0, 20
        while at_s < 600:
            at_s += float(rng.exponential(10))
            blocks = blocks + 5 if blocks < 60 else 20
            ids = [user * 10**6 + block for block in range(blocks)]
            requests.append((at_s, blocks * 16, ids))
    requests.sort()
    return spillway.trace(
        arrival_s=[at_s for at_s, _, _ in requests],
        input_tokens=[tokens for _, tokens, _ in requests],
        output_tokens=[40] * len(requests),
        hash_ids=[ids for _, _, ids in requests],
        block_size_tokens=16,
    )


def study(**settings: Any) -> Study:
    return Study(overloaded(), SMALL_SPACE, "goodput", seeds=4, **settings)


def searching(**options: Any) -> Callable[[Path], Callable[[], object]]:
    return lambda _: lambda: study().optimize(10_000, **options)


def with_file(text: str, call: Callable[[Path], object]) -> Callable[[Path], Callable[[], object]]:
    """A call with a file."""

    def prepared(folder: Path) -> Callable[[], object]:
        path = folder / "file"
        path.write_text(text)
        return lambda: call(path)

    return prepared


def stepping(_: Path) -> Callable[[], object]:
    env = GatewayEnv(
        large(1_000_000, **LIMITED),
        {"gateway.limit.max_in_flight": (4, 64)},
        interval_s=1e6,
        reward=lambda *_: 0.0,
    )

    def call() -> None:
        env.reset()
        env.step(np.ones(1, dtype=np.float32))

    return call


def stepping_many(_: Path) -> Callable[[], object]:
    # The calling thread has the shortest run, and waits for the others.
    env = GatewayVectorEnv(
        large(1_000_000, **LIMITED),
        {"gateway.limit.max_in_flight": (4, 64)},
        4,
        threads=2,
        interval_s=1e6,
        reward=lambda *_: 0.0,
    )

    def call() -> None:
        env.reset()
        env.step(np.ones((4, 1), dtype=np.float32))

    return call


def waiting_for_another(_: Path) -> Callable[[], object]:
    """Two sessions at once, of which the calling thread has the first, a short one."""
    from spillway.session import _advance_by

    def call() -> None:
        sessions = [spillway.start(large(count), 0) for count in (10, 10_000_000)]
        _advance_by(1e8, [(session, {}) for session in sessions], threads=2)

    return call


def in_blis(folder: Path) -> Callable[[], object]:
    for i in range(200):
        (folder / str(i)).mkdir()
        for name, text in SCENARIO.items():
            (folder / str(i) / name).write_text(text)
    return lambda: blis.validate(folder)


def measured(folder: Path) -> Path:
    return shutil.copytree(ROOT / "examples" / "measured_runs", folder / "runs")


def in_vllm(folder: Path) -> Callable[[], object]:
    write_recordings(folder, 60)
    return lambda: vllm_scheduler.validate(folder)


def in_a_recording(_: Path) -> Callable[[], object]:
    server = served_by(STEP)
    recording = recorded(server, offered(4.0, 1000, 1), 1)
    return lambda: validate_recording(server, recording)


def reading(folder: Path) -> Callable[[], object]:
    write_csv(trace(200_000), folder / "trace.csv")
    return lambda: spillway.read_trace(folder / "trace.csv")


def writing(folder: Path) -> Callable[[], object]:
    many = trace(200_000)
    return lambda: write_csv(many, folder / "trace.csv")


def advising(folder: Path) -> Callable[[], object]:
    log = folder / "log.csv"
    write_csv(trace(30_000), log)
    server = {"model": "llama-3.1-8b", "gpu": "h100"}
    return lambda: spillway.advise(log, "p99 ttft < 1 ms", server=server, count=2)


def reporting(folder: Path) -> Callable[[], object]:
    result = spillway.simulate(large(20_000, metrics={"timeline_step_s": 1.0}))
    return lambda: (result.write(folder / "out"), result.report(folder / "out.html"))


def looking(_: Path) -> Callable[[], object]:
    result = spillway.simulate(large(100_000))
    return lambda: (result.steady_state("ttft_s"), result.digest, str(result))


RATES = {"workload.requests_per_s": [10.0 + i for i in range(50)]}
SPACE = {"workload.requests_per_s": (1.0, 40.0)}

CASES: dict[str, Callable[[Path], Callable[[], object]]] = {
    "simulate": lambda _: lambda: spillway.simulate(large(50_000_000, metrics={"streaming": True})),
    "simulate, generation": lambda _: lambda: spillway.simulate(large(50_000_000)),
    "simulate, progress": lambda _: lambda: spillway.simulate(large(10**7), progress=nothing),
    "simulate, reference": lambda _: lambda: spillway.simulate(large(10**6), reference=True),
    "simulate, a policy in Python": lambda _: lambda: spillway.simulate(in_python()),
    "simulate, seeds": lambda _: lambda: spillway.simulate(large(), seeds=100),
    "simulate, uncertainty": lambda _: (
        lambda: spillway.simulate(
            large(instances=Server(model="llama-3.1-8b", gpu="h100").group), uncertainty=50
        )
    ),
    "simulate, a large fleet": lambda _: (
        lambda: spillway.simulate(large(instances=instance.InstanceGroup(count=20_000)))
    ),
    "run_many": lambda _: lambda: spillway.run_many([large()] * 3, 40),
    "run_many, progress": lambda _: lambda: spillway.run_many([large()] * 80, progress=nothing),
    "run_many, policies in Python": lambda _: (
        lambda: spillway.run_many([in_python()] * 3, 4, threads=3)
    ),
    "compare": lambda _: (
        lambda: spillway.compare({"a": large(20_000), "b": large(10_000)}, seeds=100)
    ),
    "diagnose": lambda _: lambda: spillway.diagnose(overloaded(), 1, tries=True, seeds=1000),
    "check": lambda _: lambda: spillway.check(large()),
    "check_policy": lambda _: lambda: check_policy(gateway.TokenBucket()),
    "advance": lambda _: lambda: spillway.start(large(10**7), 0).advance(1e8),
    "fork": lambda _: spillway.start(large(10**7), 0).advance(20_000).fork,
    "finish": lambda _: lambda: spillway.start(large(10**7), 0).finish(),
    "step": stepping,
    "step of several": stepping_many,
    "sessions at once": waiting_for_another,
    "optimize": searching(),
    "optimize, racing": searching(racing=True, check=False),
    "optimize, gp": lambda _: lambda: study(sampler="gp").optimize(10_000, check=False),
    "optimize, in a file": lambda folder: lambda: study(storage=folder / "journal").optimize(10**4),
    "optimize, an objective in Python": lambda _: (
        lambda: Study(overloaded(), SMALL_SPACE, Objective(steps, "maximize"), seeds=4).optimize(
            10_000
        )
    ),
    "optimize, threads": searching(executor=ThreadPoolExecutor(2), check=False),
    "optimize, processes": searching(executor=ProcessPoolExecutor(2), check=False),
    "confirm": given(lambda _: study().optimize(6, check=False), lambda s: s.confirm(seeds=2000)),
    "judge": lambda _: lambda: spillway.study.judge(overloaded(), "goodput >= 0.5", seeds=2000),
    "grid": lambda _: lambda: sweeps.grid(large(20_000), RATES),
    "sobol": lambda _: lambda: sweeps.sobol(large(20_000), SPACE),
    "one_at_a_time": lambda _: lambda: sweeps.one_at_a_time(large(20_000), SPACE, 50),
    "isolation": lambda _: lambda: sweeps.isolation(large(), {"a": {"warm_up_s": 1}}, seeds=40),
    "run_sweep": with_file("grid: {warm_up_s: [1, 2]}\nseeds: 2000\n", run_sweep),
    "max_rate_under_slo": lambda _: (
        lambda: solvers.max_rate_under_slo(large(20_000), {"p99_ttft_ms": "<=300"}, tolerance=1e-6)
    ),
    "min_instances_for_rate": lambda _: (
        lambda: solvers.min_instances_for_rate(large(20_000), {"p99_ttft_ms": "<=100"}, 400)
    ),
    "curve": lambda _: lambda: spillway.study.curve(large(20_000), seeds=100),
    "advise": advising,
    "calibrate": given(measured, calibrate),
    "intervals": given(
        lambda folder: calibrate(measured(folder)),
        lambda profile: intervals(large(instances=profile.group), profile, draws=100),
    ),
    "validate real": given(measured, real.validate),
    "validate blis": in_blis,
    "validate recording": in_a_recording,
    "validate vllm-scheduler": in_vllm,
    "fit": given(lambda _: trace(), traffic.fit),
    "fit_sessions": given(lambda _: turns(), traffic.fit_sessions),
    "describe": given(lambda _: trace(200_000), traffic.describe),
    "read_trace": reading,
    "write_csv": writing,
    "report": reporting,
    "views": looking,
}
"""By name, what prepares a call in a folder."""

CASES_OF: dict[str, str] = {
    "spillway.advice.procedure.advise": "advise",
    "spillway.calibration.procedure.calibrate": "calibrate",
    "spillway.comparison.paired_runs.compare": "compare",
    "spillway.comparison.paired_runs.watch": "compare",
    "spillway.diagnosis.diagnose": "diagnose",
    "spillway.simulate.finished_runs": "run_many",
    "spillway.simulate.run_many": "run_many",
    "spillway.simulate.simulate": "simulate",
    "spillway.study.evaluation.measure": "grid",
    "spillway.study.files.SweepFile.run": "run_sweep",
    "spillway.study.files.run_sweep": "run_sweep",
    "spillway.study.rate_curve.curve": "curve",
    "spillway.study.search.Search.run": "optimize",
    "spillway.study.search.check_parameters": "optimize",
    "spillway.study.solvers.max_rate_under_slo": "max_rate_under_slo",
    "spillway.study.solvers.min_instances_for_rate": "min_instances_for_rate",
    "spillway.study.confirmation.guards": "confirm",
    "spillway.study.study.Study.confirm": "confirm",
    "spillway.study.verdicts.judge": "judge",
    "spillway.study.study.Study.optimize": "optimize",
    "spillway.study.sweeps.grid": "grid",
    "spillway.study.sweeps.isolation": "isolation",
    "spillway.study.sweeps.one_at_a_time": "one_at_a_time",
    "spillway.study.sweeps.run_plan": "grid",
    "spillway.study.sweeps.sobol": "sobol",
    "spillway.traffic.fitting.fit": "fit",
    "spillway.traffic.sessions.fit_sessions": "fit_sessions",
    "spillway.validation.blis.validate": "validate blis",
    "spillway.validation.real.validate": "validate real",
    "spillway.validation.recording.validate": "validate recording",
    "spillway.validation.vllm_scheduler.validate": "validate vllm-scheduler",
}
"""The case of every function that takes threads, an executor, or a listener to its progress."""
