"""Figures other than the speed of a single run: batches, threads, scaling, memory, streaming.

`python benchmarks/suite.py` runs all of them, `--only NAME` one; `--full` adds the streaming run of
100 million requests, which takes minutes; `--smoke` takes a thousandth of the requests.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import child, peak_rss_mb
from scenarios import make, sweep, w8, with_gateways, with_tenants

import spillway
from spillway import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Barrier

_SEEDS = range(3)
_ROUNDS = 5
SMOKE_SHARE = 0.001
"""Share of the requests in a smoke test."""
_TEXT = ("request_id", "tenant", "slo_class", "outcome", "reason")

Figures = dict[str, float]


def _share_of(num_requests: int, share: float) -> int:
    return max(100, round(share * num_requests))


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = action()
    seconds = time.perf_counter() - start
    del kept
    return seconds


def from_python(share: float = 1) -> Figures:
    """W8 from Python: generation, run, and every numeric column of the requests."""
    simulation = w8(_share_of(20_000, share))

    def once() -> object:
        requests = spillway.simulate(simulation).requests
        return [requests[name] for name in requests if name not in _TEXT]

    once()
    return {"simulate_ms": 1e3 * statistics.median(_seconds(once) for _ in range(15))}


def batch(share: float = 1) -> Figures:
    """90 runs of W8-full on two threads, and their gain over one thread.

    The control compares two processes that share nothing, each with half of the runs, with one
    process that has both halves: the gain of the machine itself from a second core.
    """
    num_requests = _share_of(20_000, share)
    simulations = sweep(num_requests)
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(3)
    orders = [spawn.SimpleQueue() for _ in range(2)]
    workers = [spawn.Process(target=_work, args=(barrier, order, num_requests)) for order in orders]
    for worker in workers:
        worker.start()

    def control(halves: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        for order, own in zip(orders, halves, strict=True):
            order.put(own)
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        return time.perf_counter() - start

    times: dict[str, list[float]] = {"one": [], "two": [], "alone": [], "apart": []}
    control(((0,), (1,)))
    _run(simulations, 2)
    for _ in range(_ROUNDS):
        times["one"].append(_seconds(lambda: _run(simulations, 1)))
        times["two"].append(_seconds(lambda: _run(simulations, 2)))
        times["alone"].append(control(((0, 1), ())))
        times["apart"].append(control(((0,), (1,))))
    for order in orders:
        order.put(None)
    for worker in workers:
        worker.join()
    median = {name: statistics.median(values) for name, values in times.items()}
    batch_speedup = median["one"] / median["two"]
    control_speedup = median["alone"] / median["apart"]
    return {
        "batch_s": median["two"],
        "batch_speedup": batch_speedup,
        "control_speedup": control_speedup,
        "speedup_ratio": batch_speedup / control_speedup,
    }


def _run(simulations: list[spillway.Simulation], threads: int) -> object:
    return spillway.run_many(simulations, _SEEDS, threads=threads)


def _work(barrier: Barrier, orders: SimpleQueue[Any], num_requests: int) -> None:
    """Each order names the halves of the batch for this process."""
    simulations = sweep(num_requests)
    halves = simulations[::2], simulations[1::2]
    while (order := orders.get()) is not None:
        barrier.wait()
        for half in order:
            _run(halves[half], 1)
        barrier.wait()


def scaling(share: float = 1) -> Figures:
    """Time of 200,000 requests of W8 over that of 20,000."""
    small, large = (
        (simulation, _core.cluster.offered_requests(simulation, 0))
        for simulation in (w8(_share_of(n, share)) for n in (20_000, 200_000))
    )

    def run(prepared: tuple[spillway.Simulation, Any]) -> float:
        simulation, requests = prepared
        return _seconds(lambda: _core.cluster.run(simulation, 0, False, requests))

    run(small), run(large)
    ratios = [run(large) / run(small) for _ in range(15)]
    return {"scaling": statistics.median(ratios)}


def tenants(share: float = 1) -> Figures:
    """CPU time of 20,000 requests from 10,000 tenants over that from 4."""
    return {"tenants_ratio": _cpu_ratio(with_tenants, (4, 10_000), share)}


def gateways(share: float = 1) -> Figures:
    """CPU time of 20,000 requests behind 64 gateways over that behind one."""
    return {"gateways_ratio": _cpu_ratio(with_gateways, (1, 64), share)}


def _cpu_ratio(
    scenario: Callable[[int, int], spillway.Simulation], numbers: tuple[int, int], share: float
) -> float:
    """Of the second to the first, each the minimum of runs in turns."""
    prepared = [
        (simulation, _core.cluster.offered_requests(simulation, 0))
        for simulation in (scenario(number, _share_of(20_000, share)) for number in numbers)
    ]
    best = [float("inf"), float("inf")]
    for _ in range(1 + 2 * _ROUNDS):
        for i, (simulation, requests) in enumerate(prepared):
            start = time.process_time()
            kept = _core.cluster.run(simulation, 0, False, requests)
            best[i] = min(best[i], time.process_time() - start)
            del kept
    return best[1] / best[0]


def memory(share: float = 1) -> Figures:
    """Bytes per additional request of W8, from the peaks of fresh processes."""
    small, large = (_share_of(n, share) for n in (100_000, 1_000_000))
    peaks = [_in_child(n)["peak_rss_mb"] for n in (small, large)]
    return {"bytes_per_request": (peaks[1] - peaks[0]) * 2**20 / (large - small)}


def streaming(share: float = 1, num_requests: int = 10_000_000) -> Figures:
    """W8 in streaming mode in a fresh process."""
    done = _in_child(_share_of(num_requests, share), "--streaming")
    millions = f"{num_requests // 1_000_000}m"
    return {
        f"streaming_{millions}_mib": done["peak_rss_mb"],
        f"streaming_{millions}_s": done["elapsed_s"],
    }


def streaming_long(share: float = 1) -> Figures:
    """The same with 100 million requests."""
    return streaming(share, 100_000_000)


def _in_child(num_requests: int, *more: str) -> dict[str, Any]:
    return child(Path(__file__), "--child", num_requests, *more)


def _child(num_requests: int, *, streamed: bool) -> None:
    simulation = make("W8", num_requests)
    simulation = simulation.with_({"metrics.streaming": streamed})
    start = time.perf_counter()
    result = spillway.simulate(simulation)
    elapsed_s = time.perf_counter() - start
    assert result.ledger["completed"] == num_requests
    print(json.dumps({"elapsed_s": elapsed_s, "peak_rss_mb": peak_rss_mb()}))


FUNCTIONS: dict[str, Callable[[float], Figures]] = {
    "from_python": from_python,
    "batch": batch,
    "scaling": scaling,
    "tenants": tenants,
    "gateways": gateways,
    "memory": memory,
    "streaming": streaming,
    "streaming_long": streaming_long,
}


def run_all(*, full: bool = False, share: float = 1) -> Figures:
    """All figures in one mapping; the minutes-long ones only if `full`."""
    figures: Figures = {}
    for name, function in FUNCTIONS.items():
        if full or name != "streaming_long":
            figures.update(function(share))
    return figures


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FUNCTIONS)
    parser.add_argument("--full", action="store_true", help="streaming with 100 M requests too")
    parser.add_argument("--smoke", action="store_true", help="with a thousandth of the requests")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--child", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--streaming", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _child(options.child, streamed=options.streaming)
        return
    share = SMOKE_SHARE if options.smoke else 1
    if options.only:
        figures = FUNCTIONS[options.only](share)
    else:
        figures = run_all(full=options.full, share=share)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<20}{value:>12.3f}")


if __name__ == "__main__":
    main()
