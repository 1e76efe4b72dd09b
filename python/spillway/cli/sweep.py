"""`spillway sweep SWEEP`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli import executors, output
from spillway.config.filesystem import replacing

if TYPE_CHECKING:
    import argparse

    from spillway.study.solvers import Solution
    from spillway.study.sweeps import Sweep


_JOURNAL = "sweep_journal.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "sweep", type=Path, metavar="SWEEP",
        help="sweep file (YAML or JSON); `spillway describe sweep` explains its keys, `spillway "
        "check` checks it",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="write sweep.csv, or solution.json, there; after an interruption a second call "
        "runs only what sweep_journal.jsonl there lacks",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="begin anew: discard the journal in DIR"
    )
    executors.add_arguments(parser)
    output.add_json(parser, "seeds, metrics, rows and notes; of a solver, that of solution.json")


def run(options: argparse.Namespace) -> int:
    """Runs configurations side by side, or solves for one number, and prints the results."""
    from spillway.study import files  # slow to import, and `--help` does not need it
    from spillway.study.sweeps import Sweep

    sweep_file = files.read_sweep(options.sweep)
    journal = output.journal_in(options, _JOURNAL)
    if journal is not None and journal.exists():
        output.say(f"{journal}: continues an interrupted sweep (--force begins anew)")
    with executors.opened(options) as where:
        found = sweep_file.run(**where, progress=True, journal=journal)
    if options.out is not None:
        name = "sweep.csv" if isinstance(found, Sweep) else "solution.json"
        output.replaced([options.out / name])
        files.write_sweep(found, options.out)
        with replacing(options.out / _JOURNAL) as temporary:
            temporary.unlink()  # the journal vanishes when the results appear
    output.show(options, found, lambda: _document(found))
    return 0


def _document(found: Sweep | Solution) -> dict[str, Any]:
    from spillway.study.sweeps import Sweep

    if not isinstance(found, Sweep):
        return found.to_dict()
    return {
        "seeds": found.seeds,
        "metrics": found.metrics,
        "rows": found.to_rows(),
        "notes": found.notes(),
    }
