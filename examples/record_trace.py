"""Writes requests.csv: 2,000 requests of noisy_neighbor.yaml without its burst, as a trace.

A log of your own traffic becomes a trace in the same way: a row per request, with the time of
arrival in seconds and the tokens of prompt and output; tenant and class are optional.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import spillway

COLUMNS = ("arrival_s", "tenant", "slo_class", "input_tokens", "output_tokens")


def main() -> None:
    """Runs the workload with a gateway that admits everything, and writes the arrivals."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("requests.csv"))
    options = parser.parse_args()
    example = spillway.load(Path(__file__).parent / "noisy_neighbor.yaml")
    *usual, _ = example.workload.clients
    example = example.with_(
        {
            "workload.clients": usual,
            "workload.num_requests": 2000,
            "gateway.admission": "always_admit",
        }
    )
    requests = spillway.simulate(example).requests
    with options.output.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in zip(*(requests[name].tolist() for name in COLUMNS), strict=True):
            writer.writerow([f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row])
    print(f"{options.output}: {requests.num_rows:,} requests")


if __name__ == "__main__":
    main()
