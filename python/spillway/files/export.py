"""Files for other programs: summary.json and requests.csv; of several seeds also tables."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING

from spillway import _registry
from spillway._core.sim import UsageError
from spillway.config.classes import config_error
from spillway.config.extras import require
from spillway.config.filesystem import make_folder, replacing_all, together
from spillway.data import frames
from spillway.files.requests_file import RequestsFile

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.data.replications import Replications
    from spillway.data.result_data import ResultData


REQUEST_COLUMNS = (
    "request_id",
    "tenant",
    "slo_class",
    "outcome",
    "reason",
    "instance",
    "arrival_s",
    "ttft_s",
    "e2e_s",
    "queue_s",
    "scheduling_delay_s",
    "itl_mean_s",
    "input_tokens",
    "output_tokens",
    "requested_output_tokens",
    "prefill_instance",
    "prefill_end_s",
    "transfer_s",
    "decode_queue_s",
    "wasted_tokens",
    "migrations",
    "recomputed_tokens",
)
"""Columns of requests.csv, in order. Old results do not have requested_output_tokens; those after
it are there with prefill and decode pools, the last two with `fleet.migration`."""

_TEXTS = {form.name: form for form in _registry.found(RequestsFile, "result")}

FILES = {
    "csv": "requests.csv",
    "parquet": "requests.parquet",
    **{form.name: form.file for form in _TEXTS.values()},
}
"""Formats of the file of requests, and its name."""

SUMMARIES = ("summary.csv", "seeds.csv", "summary.json")
"""Files of several seeds: means with intervals, figures of each seed, and both."""

RUNS = "seed_{seed}"
"""Folder of one of several seeds."""


def write_result(result: ResultData, directory: Path, file: str = "csv") -> None:
    """Writes summary.json of a run, and its requests if they were kept, in a format of FILES.

    Raises ConfigError if they cannot be written.
    """
    _check_format(file)
    parquet = require("pyarrow.parquet", "frames") if file == "parquet" else None
    summary, requests = directory / "summary.json", directory / FILES[file]
    text = json.dumps(result.to_dict(), indent=2) + "\n"
    make_folder(directory)
    with replacing_all([requests, summary]) as (new_requests, new_summary):
        if result.has_requests and parquet is not None:
            provenance = frames.provenance(seeds=[result.seed], fingerprint=result.fingerprint)
            table = result.requests.to_arrow()
            table = table.replace_schema_metadata({"spillway": json.dumps(provenance)})
            parquet.write_table(table, new_requests)
        elif result.has_requests and file in _TEXTS:
            new_requests.write_text(_TEXTS[file].text(result) + "\n", encoding="utf-8")
        elif result.has_requests:
            _write_requests(result, new_requests)
        else:
            new_requests.unlink()
        new_summary.write_text(text, encoding="utf-8")


def write_results(
    replications: Replications[ResultData], directory: Path, file: str | None, confidence: float
) -> None:
    """Writes the SUMMARIES of runs; with a format of FILES, also each run with its requests.

    Raises ConfigError if they cannot be written, UsageError without runs.
    """
    if not replications:
        raise UsageError("there are no runs to write")
    if file is not None:
        _check_format(file)
    first = replications[0]
    provenance = frames.provenance(seeds=replications.seeds, fingerprint=first.fingerprint)
    origin = {key: provenance[key] for key in ("version", "fingerprint")}
    means = list(
        frames.long_rows(
            replications.summary(confidence),
            replications.by_class(confidence),
            replications.by_tenant(confidence),
        )
    )
    single = [
        {**row, "seed": run.seed, **origin}
        for run in replications.distinct
        for row in frames.long_rows(run.summary(), run.by_class(), run.by_tenant())
    ]
    document = {
        **provenance,
        "profile": first.profile,
        "confidence": confidence,
        "notes": replications.notes(),
        "figures": means,
        "runs": [run.to_dict() for run in replications.distinct],
    }
    text = json.dumps(document, indent=2) + "\n"
    with together():
        make_folder(directory)
        with replacing_all([directory / name for name in SUMMARIES]) as (summary, seeds, whole):
            frames.write_rows([{**row, **origin} for row in means], summary)
            frames.write_rows(single, seeds)
            whole.write_text(text, encoding="utf-8")
        if file is not None:
            for run in replications.distinct:
                write_result(run, directory / RUNS.format(seed=run.seed), file)


def _check_format(file: str) -> None:
    if file not in FILES:
        raise config_error([("requests", repr(file), f"must be one of {', '.join(FILES)}")])


def _write_requests(result: ResultData, path: Path) -> None:
    def cells(name: str) -> list[str]:
        values = result.requests[name].tolist()
        if name.endswith("_s"):
            return ["" if math.isnan(value) else f"{value:.9f}" for value in values]
        if name in ("instance", "prefill_instance"):
            return ["" if value < 0 else str(value) for value in values]
        return [str(value) for value in values]

    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        names = [name for name in REQUEST_COLUMNS if name in result.requests]
        writer.writerow(names)
        writer.writerows(zip(*map(cells, names), strict=True))
