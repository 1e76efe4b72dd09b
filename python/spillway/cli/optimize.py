"""`spillway optimize STUDY`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError, UsageError
from spillway.cli import executors, output

if TYPE_CHECKING:
    import argparse

    from spillway.study import Study
    from spillway.study.confirmation import Confirmation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "study", type=Path, metavar="STUDY",
        help="study file (YAML or JSON); `spillway describe study` explains its keys, `spillway "
        "check` checks it",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="write study.yaml, trials.csv, best.yaml, confirmation.json and AIPerf's "
        "search_history.json there; its "
        "journal.log keeps the finished trials, and a second call resumes the study",
    )  # fmt: skip
    parser.add_argument(
        "--trials", type=int, metavar="N", help="total number (default: from STUDY)"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write tables and pictures as one HTML file"
    )
    parser.add_argument(
        "--target", metavar="SYSTEM[@VERSION]",
        help="search only what the configuration files of this system can hold, as `spillway "
        "export --to` writes them; with --out, write those of the best configuration",
    )  # fmt: skip
    executors.add_arguments(parser)
    parser.add_argument(
        "--force", action="store_true",
        help="begin anew: discard the trials of another or an earlier study in DIR",
    )  # fmt: skip
    output.add_json(
        parser,
        "trials, best (that of best.yaml, or null), confirmation (or null), guards (headline "
        "figures that worsen although nothing asks for them)",
    )


def run(options: argparse.Namespace) -> int:
    """Searches, and confirms the best trials; returns 1 if nothing is feasible.

    That is: no trial, or on fresh seeds neither a candidate nor the current configuration.
    """
    from spillway.study import files  # slow to import, and `--help` does not need it

    output.check_at_least(options, 1, "trials")
    study_file = files.read_study(options.study)
    if options.target is not None:
        study_file, left_out = study_file.carried_by(options.target)
        for line in left_out:
            output.say(line)
    study = study_file.study(output.journal_in(options, "journal.log"))
    if study.records:
        output.say(f"{options.out}: resumes the study after {len(study.records)} trials")
    n_trials = options.trials or study_file.trials
    with executors.opened(options) as where:
        study.optimize(n_trials, total=True, **where, progress=True, **study_file.optimize)
        if study.stopped_by:
            output.say(f"ended after {len(study.records)} trials by {study.stopped_by}")
        text, confirmation = str(study), None
        if study.feasible and study_file.confirm is not None:
            try:
                confirmation = study.confirm(**where, progress=True, **study_file.confirm)
            except UsageError as error:
                text += f"\n\nnot confirmed: {error}"
            else:
                text += f"\n\n{confirmation}"
    output.show(options, text, lambda: _document(study, confirmation))
    if options.out is not None:
        study_file.write(options.out / "study.yaml")
        _write(study, options.out, confirmation)
        if options.target is not None:
            _deploy(study, confirmation, options)
    if options.html is not None:
        study.report(options.html, confirmation=confirmation)
        output.say(f"wrote {options.html}")
    is_feasible = study.feasible if confirmation is None else confirmation.choice is not None
    return 0 if is_feasible else 1


def _write(study: Study, folder: Path, confirmation: Confirmation | None) -> None:
    """Writes the results, and says if there is no best configuration among them."""
    from spillway.study import files

    files.write_results(study, folder, confirmation)
    if confirmation is not None and confirmation.choice is None:
        output.say(f"no {folder / 'best.yaml'}: {confirmation.reason}")


def _deploy(study: Study, confirmation: Confirmation | None, options: argparse.Namespace) -> None:
    """Writes the best configuration as files of the target."""
    from spillway.files import deployments

    number = _best(study, confirmation)
    if number is None:
        return
    try:
        export = deployments.export(study.simulation_of(number), options.target)
    except ConfigError as error:
        output.say(f"no {options.out / 'deploy'}: {error}")
        return
    for path in export.write(options.out / "deploy"):
        output.say(f"wrote {path}")
    for line in str(export).splitlines()[1:]:
        output.say(line)


def _best(study: Study, confirmation: Confirmation | None) -> int | None:
    """The number of the trial of best.yaml."""
    number = None
    if confirmation is not None:
        if confirmation.choice is not None:
            won = confirmation.winner
            number = confirmation.baseline.number if won is None else won
    elif len(study.objectives) == 1 and study.feasible:
        number = study.best_trial.number
    return number


def _document(study: Study, confirmation: Confirmation | None) -> dict[str, Any]:
    number = _best(study, confirmation)
    best = None
    if number is not None:
        point = next(record.point for record in study.records if record.number == number)
        best = {"trial": number, "point": point, "simulation": study.simulation_of(number)}
    guards = () if confirmation is None else confirmation.guards
    return {
        "trials": study.rows(),
        "best": best,
        "confirmation": confirmation,
        "guards": guards,
    }
