"""Runs all benchmarks and writes benchmarks/README.md: `python benchmarks/make_readme.py`.

The figures are stored in build/bench.json. `--reuse` writes the text from them without running
anything; `--only PART` repeats one part and takes the rest from the store.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import instructions
import peers
import search
import shares
import suite
from bench import child
from scenarios import SCENARIOS

import spillway

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent
_STORE = _ROOT / "build" / "bench.json"
_HEAVY = 100_000  # number of requests from which fewer runs are made
_WHOLE_MACHINE = 1.7  # gain of two processes below which other processes used the second core


@dataclass(frozen=True)
class Target:
    """A figure, its format and its target."""

    what: str
    key: str
    unit: str
    bound: float
    at_least: bool = False
    digits: int = 1
    scale: float = 1.0

    def row(self, figures: dict[str, float]) -> list[str]:
        """Cells of a table: what, target, measured, reached."""
        sign = "≥" if self.at_least else "≤"
        target = f"{sign} {self.bound:g} {self.unit}".rstrip()
        if self.key not in figures:
            return [self.what, target, "not run", ""]
        value = figures[self.key] / self.scale
        reached = value >= self.bound if self.at_least else value <= self.bound
        shown = f"{value:,.{self.digits}f} {self.unit}".rstrip()
        return [self.what, target, shown, "yes" if reached else "**no**"]


_SPEEDS = (
    Target("W8", "W8", "M requests/s", 3, at_least=True, digits=2, scale=1e6),
    Target("W8-full", "W8-full", "M requests/s", 1, at_least=True, digits=2, scale=1e6),
    Target("W8-control", "W8-control", "M requests/s", 1, at_least=True, digits=2, scale=1e6),
    Target("W8-long", "W8-long", "M requests/s", 2, at_least=True, digits=2, scale=1e6),
    Target("W8-prefix", "W8-prefix", "M requests/s", 0.6, at_least=True, digits=2, scale=1e6),
    Target("W64", "W64", "M requests/s", 2, at_least=True, digits=2, scale=1e6),
    Target(
        "overload, completed", "overload", "M requests/s", 1, at_least=True, digits=2, scale=1e6
    ),
)
_SHARES = {
    "W8": 0.45,
    "W8-full": 0.30,
    "W8-control": 0.26,
    "W8-long": 0.45,
    "W8-prefix": 0.25,
    "W64": 0.40,
    "W1000": 0.20,
    "overload": 0.24,
}
_W1000 = Target("W1000, 1 M requests", "W1000", "s", 20)
_FURTHER = (
    Target("`simulate(W8)` from Python, with all numeric columns", "simulate_ms", "ms", 25),
    Target("90 runs of W8-full on two threads", "batch_s", "s", 2, digits=2),
    Target(
        "gain of two threads over that of two processes",
        "speedup_ratio",
        "%",
        95,
        at_least=True,
        scale=0.01,
    ),
    Target("time of 200,000 requests ÷ of 20,000", "scaling", "", 11, digits=2),
    Target("time of 10,000 tenants ÷ of 4", "tenants_ratio", "", 3, digits=2),
    Target("time of 64 gateways ÷ of one", "gateways_ratio", "", 1.5, digits=2),
    Target("memory per request", "bytes_per_request", "bytes", 100, digits=0),
    Target("peak memory of 10 M requests, streaming", "streaming_10m_mib", "MiB", 200, digits=0),
    Target("peak memory of 100 M requests, streaming", "streaming_100m_mib", "MiB", 200, digits=0),
)


def _machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    for path, key in ((Path("/proc/cpuinfo"), "model name"),):
        lines = path.read_text().splitlines() if path.exists() else []
        model = next((ln.split(":", 1)[1].strip() for ln in lines if ln.startswith(key)), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "build": spillway.build_info,
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
    }


def _scenarios(num_requests: int | None = None) -> list[dict[str, Any]]:
    rows = []
    size = () if num_requests is None else ("--num-requests", num_requests)
    for name in SCENARIOS:
        run = ("--scenario", name, "--json", *size, "--repeats")
        row = child(_HERE / "bench.py", *run, 5)
        repeats = 1 if row["requests"] >= _HEAVY else 3
        plain = child(_HERE / "bench.py", *run, repeats, "--reference")
        rows.append({**row, "reference_run": plain})
    return rows


def _limit(rounds: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Shares of the skeleton, and instructions per request where they can be counted."""
    can_count = instructions.missing() is None
    return {
        "shares": shares.measure(sizes, rounds),
        "instructions": {
            name: instructions.measure(name, size) for name, size in sizes.items() if can_count
        },
    }


def _micro() -> list[dict[str, Any]]:
    build = _ROOT / "build" / "micro"
    beside = Path(sys.executable).parent / "cmake"
    cmake = str(beside) if beside.exists() else "cmake"
    configure = [cmake, "-S", str(_ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    configure += ["-DSPILLWAY_PYTHON=OFF", "-DSPILLWAY_BENCHMARKS=ON"]
    compile_all = [cmake, "--build", str(build), "--target", "micro_benchmarks"]
    for command in (configure, compile_all):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = []
    for source in sorted((_HERE / "micro").glob("*_bench.cpp")):
        program = next(path for path in build.rglob(source.stem) if path.is_file())
        done = subprocess.run([str(program)], check=True, stdout=subprocess.PIPE, text=True)
        rows += [json.loads(line) for line in done.stdout.splitlines()]
    return rows


def _table(head: Sequence[str], rows: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _limit_row(name: str, limit: dict[str, Any]) -> list[str]:
    counted, share = limit["instructions"].get(name), limit["shares"].get(name)
    target = _SHARES.get(name)
    return [
        name,
        f"{counted:,.0f}" if counted else "-",
        f"{share['cpu_us']:.3f}" if share else "-",
        f"{share['share']:.3f}" if share else "-",
        f"≥ {target:.2f}" if target else "",
        ("yes" if share["share"] >= target else "**no**") if share and target else "",
    ]


def _scenario_row(row: dict[str, Any]) -> list[str]:
    plain = row["reference_run"]
    return [
        row["scenario"],
        f"{row['requests']:,}",
        f"{row['steps'] / row['requests']:.1f}",
        f"{row['events'] / row['requests']:.1f}",
        f"{row['requests_per_s'] / 1e6:.2f} M",
        f"{row['steps_per_s'] / 1e6:.1f} M",
        f"{row['output_tokens_per_s'] / 1e6:,.0f} M",
        f"{row['peak_rss_mb']:.0f}",
        f"{plain['requests_per_s'] / 1e3:,.0f} k",
        f"{row['requests_per_s'] / plain['requests_per_s']:.1f}",
        "yes" if row["digest"] == plain["digest"] else "**no**",
    ]


_TEXT = """\
# Benchmarks

Generated by `make_readme.py`; it measures every figure.

{machine}

## Targets

{targets}

Two threads made the batch {batch_speedup:.2f} times as fast as one. The control, two processes that
share nothing and have half of the runs each, was {control_speedup:.2f} times as fast as one process
with all of them: that is the limit of the machine, so the target applies to the ratio of the two.
If the control gains less than {whole_machine:g}, another process used a core and the ratio is void.
Rounds of all four are interleaved; the figures are medians. {streaming}

## Scenarios

{scenarios}

One thread; median of five runs after a warm-up run, with default metrics, ledger and summary;
the workload is generated once, outside of the timing. Requests are those completed, steps those of
the simulated engines. The reference run (`simulate(..., reference=True)`) simulates every step
separately, three times or, from {heavy:,} requests, once; the digest covers requests and figures.

{explanations}

## Distance to the limit

{limit}

The skeleton (`micro/skeleton_w8.cpp`) does the work of W8 and nothing else, without KV memory,
tenants and gateway: the same steps, stamps and figures from the same arrivals. A share is its CPU
time per request over that of the scenario per completed request, each the minimum of rounds in
turns; W1000 has 50,000 requests here. Instructions are those of one run, per completed request,
counted by callgrind; a dash means that they were not counted. `make bench-check` compares them, at
3,000 requests, with those of `instructions.json`.

## Other simulators

{peers}

The load is that of W8 with 20,000 requests: eight instances in turn, 96 requests/s, 512 tokens in
and 128 out. CPU time of the whole process, the minimum of rounds in turns, and of Spillway also
without what the interpreter and the imports take. Models of time differ, so the steps do not agree
one by one; the times of a step are set such that E2E latencies are alike.
{install}
Vidur (`pip install vidur`) has not been measured.

## Parts

{micro}

Size is the number of pending events, of owners of alarms, or of requests in the batch.
`events_hold` takes the earliest event and creates a later one, `alarms_hold` the same with alarms;
`events_immediate` creates an event for the current instant and takes it; an operation of
`decoders_join_advance_pop` is the whole stay of one request.

## Searches

The cost of a trial besides its runs, by sampler: the search of `examples/mixed_targets_study.yaml`
with 1,000 requests a run, after 200 trials in memory; wall time excluding the runs, median of
10 batches.

{overhead}

{fits}

## How to run

```bash
python benchmarks/bench.py --all               # the scenarios
python benchmarks/bench.py --scenario W8 --json  # one; also --reference, --num-requests, --repeats
python benchmarks/suite.py                     # the other figures; also --only, --full
python benchmarks/readers.py                   # trace readers; also --against, --file
python benchmarks/search.py                    # searches; also --only
python benchmarks/session.py                   # held runs and environments
python benchmarks/compare.py main              # a revision and the working tree
python benchmarks/shares.py                    # CPU time against the skeleton; also --scenario
python benchmarks/instructions.py              # instructions per request; also --scenario
python benchmarks/peers.py                     # other simulators, where installed
make bench-check                               # the committed instructions; also RENEW="reason"
python benchmarks/make_readme.py --full        # everything, and this file; also --only, --reuse
```
"""
_HEAD = (
    "scenario",
    "requests",
    "steps / request",
    "events / request",
    "requests/s",
    "steps/s",
    "output tokens/s",
    "peak RSS, MiB",
    "reference, requests/s",
    "ratio",
    "same digest",
)


def _fits(searches: dict[str, Any]) -> str:
    """Times of the fits and proposals of the Gaussian process, in a sentence each."""
    fits, batches = searches["fits"], searches["batches"]
    ours, theirs, ratios = fits["spillway (ms)"], fits["scikit-learn (ms)"], fits["ratios"]
    sizes = ", ".join(f"{size} in {times[0]:.1f} ms" for size, times in batches.items())
    return (
        f"A fit of {fits['n']} noisy values of six parameters takes {ours[0]:.0f} ms "
        f"({ours[1]:.0f} ms of processor time), that of scikit-learn {theirs[0]:,.0f} ms "
        f"({theirs[1]:,.0f} ms): medians of runs in turns, ratios {ratios[0]:.1f} and "
        f"{ratios[1]:.1f}. `gp` proposes, after 200 trials and with the refit, {sizes}."
    )


def _text(results: dict[str, Any]) -> str:
    machine, further = results["machine"], results["further"]
    rows = {row["scenario"]: row for row in results["scenarios"]}
    targets = [
        target.row({name: row["requests_per_s"] for name, row in rows.items()})
        for target in _SPEEDS
    ]
    targets.append(_W1000.row({name: row["run_s"] for name, row in rows.items()}))
    for target in _FURTHER:
        row = target.row(further)
        if target.key == "speedup_ratio" and further["control_speedup"] < _WHOLE_MACHINE:
            row[-1] = "undecided: a core was in use"
        targets.append(row)
    build = machine["build"]
    streaming = f"Streaming took {further['streaming_10m_s']:.1f} s for 10 M requests"
    if "streaming_100m_s" in further:
        streaming += f", {further['streaming_100m_s']:.0f} s for 100 M"
    return _TEXT.format(
        machine=f"{machine['cpu']}, {machine['cores']} cores; {machine['system']}; compiler "
        f"{build['compiler']}, build type {build['build_type']}; {machine['date']}; load average "
        f"at the start {machine['load']:.1f}.",
        targets=_table(("figure", "target", "measured", "reached"), targets),
        batch_speedup=further["batch_speedup"],
        control_speedup=further["control_speedup"],
        streaming=streaming + ".",
        scenarios=_table(_HEAD, [_scenario_row(row) for row in results["scenarios"]]),
        heavy=_HEAVY,
        peers=_table(
            ("simulator", "CPU s", "ratio", "mean TTFT, ms", "mean E2E, ms"),
            [
                [
                    row["name"],
                    f"{row['cpu_s']:.3f}",
                    f"{row['cpu_s'] / results['peers'][0]['cpu_s']:.1f}",
                    f"{row['mean_ttft_ms']:.1f}",
                    f"{row['mean_e2el_ms']:,.0f}",
                ]
                for row in results["peers"]
            ],
        ),
        install="\n".join(
            f"`{command}` installs {name}; `peers.py` runs it if it is on the path."
            for name, command in peers.INSTALL.items()
        ),
        limit=_table(
            (
                "scenario",
                "instructions / request",
                "CPU us / request",
                "share",
                "target",
                "reached",
            ),
            [_limit_row(name, results["limit"]) for name in ("skeleton", *SCENARIOS)],
        ),
        whole_machine=_WHOLE_MACHINE,
        explanations="\n".join(
            f"- **{name}**: {(function.__doc__ or '').strip().splitlines()[0]}"
            for name, function in SCENARIOS.items()
        ),
        overhead=_table(
            ("sampler", f"ms per batch of {search.BATCH}", "ms per trial"),
            [
                [f"`{name}`", f"{ms:.1f}", f"{ms / search.BATCH:.1f}"]
                for name, ms in results["searches"]["overhead"].items()
            ],
        ),
        fits=_fits(results["searches"]),
        micro=_table(
            ("operation", "size", "ns"),
            [
                [f"`{result['name']}`", f"{result['size']:,}", f"{result['ns']:.1f}"]
                for result in results["micro"]
            ],
        ),
    )


def main() -> None:
    """Command line."""
    parts: dict[str, Callable[[], Any]] = {
        "micro": _micro,
        "scenarios": _scenarios,
        "limit": lambda: _limit(shares.ROUNDS, shares.SIZES),
        "peers": peers.measure,
        "further": lambda: suite.run_all(full=options.full),
        "searches": search.run_all,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reuse", action="store_true", help="text only, from build/bench.json")
    parser.add_argument("--only", choices=parts, action="append", help="repeat these parts")
    parser.add_argument("--full", action="store_true", help="streaming with 100 M requests too")
    parser.add_argument("--store", type=Path, default=_STORE, help="file that stores the figures")
    parser.add_argument("--output", type=Path, default=_HERE / "README.md")
    parser.add_argument(
        "--smoke", action="store_true", help="with few requests, without the micro-benchmarks"
    )
    options = parser.parse_args()
    if options.smoke:
        parts = {
            "micro": list,
            "scenarios": lambda: _scenarios(100),
            "limit": lambda: _limit(1, {"W8": 100}),
            "peers": lambda: peers.measure(1, 100),
            "further": lambda: suite.run_all(share=suite.SMOKE_SHARE),
            "searches": lambda: search.run_all(search.SMOKE_SHARE),
        }
    results: dict[str, Any] = {}
    if options.reuse or options.only:
        results = json.loads(options.store.read_text())
    if not options.reuse:
        results["machine"] = _machine()
        for name in options.only or parts:
            print(name, file=sys.stderr, flush=True)
            results[name] = parts[name]()
        options.store.parent.mkdir(parents=True, exist_ok=True)
        options.store.write_text(json.dumps(results, indent=1))
    options.output.write_text(_text(results))


if __name__ == "__main__":
    main()
