"""`spillway optimize STUDY`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spillway._core.sim import UsageError
from spillway.cli.configuration import warnings_as_lines
from spillway.config.classes import config_error
from spillway.config.filesystem import make_folder

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def __dir__() -> list[str]:
    return __all__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="study file (YAML or JSON)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write study.yaml, trials.csv, best.yaml, confirmation.json and AIPerf's "
        "search_history.json there; its "
        "journal.log keeps the finished trials, and a second call resumes the study",
    )
    parser.add_argument(
        "--trials", type=int, metavar="N", help="total number (default: from STUDY)"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write tables and pictures as one HTML file"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="concurrent runs (default: CPUs)")


def run(options: argparse.Namespace) -> int:
    """Searches, and confirms the best trials; returns 1 if no trial is feasible."""
    from spillway.study import files  # slow to import, and `--help` does not need it

    for name in ("trials", "threads"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise config_error([(f"--{name}", str(getattr(options, name)), "must be >= 1")])
    with warnings_as_lines():
        stated = files.read_study(options.study)
        storage = None
        if options.out is not None:
            make_folder(options.out)
            stated.write(options.out / "study.yaml")
            storage = options.out / "journal.log"
        study = stated.study(storage)
        is_over = False
        with contextlib.suppress(KeyboardInterrupt):
            n_trials = options.trials or stated.trials
            study.optimize(n_trials, total=True, threads=options.threads, **stated.optimize)
            is_over = True
        print(study)
        confirmation = None
        if is_over and study.feasible and stated.confirm is not None:
            try:
                confirmation = study.confirm(threads=options.threads, **stated.confirm)
            except UsageError as error:
                print(f"\nnot confirmed: {error}")
            else:
                print(f"\n{confirmation}")
        if options.out is not None:
            files.write_results(study, options.out, confirmation)
        if options.html is not None:
            study.report(options.html)
            print(f"spillway: wrote {options.html}", file=sys.stderr)
    if not is_over:
        raise KeyboardInterrupt
    return 0 if study.feasible else 1
