"""Every reader of files, with valid files, and ways to damage them.

Formats come from the registries of the package, so that a new one takes part by itself: its
valid files are those of the tests, or made from its columns. `READERS` are the functions that read;
`tests/fuzz/test_readers.py` requires that no public one is missing.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import re
import string
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml
from support.paths import DATA, ROOT
from support.random_simulations import random_simulation
from support.study_problems import SMALL_SPACE, overloaded
from support.trace_reading import alike
from support.traces import files_of_tools

import spillway
from spillway import ConfigError, Result, TraceError, UsageError, instance, simulate
from spillway.calibration import Profile
from spillway.calibration.refinement import coefficients_of
from spillway.config import acceptance
from spillway.config.files import dump, read_settings
from spillway.files import recordings
from spillway.files.deployments import TARGETS, import_
from spillway.files.recordings import FORMATS as RECORDINGS
from spillway.files.traces import arrow
from spillway.files.traces.csv_table import decimal_to_ns
from spillway.files.traces.reading import FORMATS as TRACES
from spillway.files.traces.reading import read_columns, read_trace
from spillway.files.traces.timestamps import timestamp_to_ns
from spillway.servers.server import read_profile
from spillway.study import Study, grid
from spillway.study.files import read_study, read_sweep
from spillway.study.measurements import Measurements
from spillway.study.storage import resolve
from spillway.traffic import read_client_pool, read_load
from spillway.validation.workers import counts_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

Files = dict[str, bytes]
"""By name: the files of one input."""

DOCUMENTED = (TraceError, ConfigError, UsageError)


@dataclass(frozen=True)
class Reader:
    """A function of a folder with files, and valid inputs."""

    read: Callable[[Path], object]
    seeds: Callable[[], list[Files]]
    refuses: tuple[type[Exception], ...] = DOCUMENTED
    """The errors that its documentation names."""


# --- valid files ----------------------------------------------------------------------------------


def _files_of(*paths: Path) -> Files:
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _typical(column: str, row: int) -> Any:  # noqa: PLR0911
    if column in ("tenant", "request_id", "slo_class", "client_id"):
        return f"{column}-{row}"
    if column == "prefix_group":
        return ""
    if column == "hash_ids":
        return [1]
    if column == "prefix_length":
        return 8
    if re.search("time|date|TIMESTAMP|created", column):
        return 1_760_000_000 + row
    if re.search("hash|blocks|ids", column):
        return [1, 2, 3 + row]
    if re.search("token|length|len|size|count|num", column, re.IGNORECASE):
        return 40 + row
    return row


def _trace(name: str) -> list[Files]:
    """Rows of the columns of a format, in files with and without its optional ones."""
    form = TRACES[name]
    found = []
    for columns in (form.required, (*form.required, *(form.optional or ()))):
        rows = [{column: _typical(column, row) for column in columns} for row in range(3)]
        if form.layout == "jsonl":
            text = "\n".join(json.dumps(row) for row in rows)
        else:
            lines = [list(columns), *([row[column] for column in columns] for row in rows)]
            text = "\n".join(",".join(map(str, line)) for line in lines)
        found.append({f"trace.{form.layout}": text.encode() + b"\n"})
    if name in files_of_tools():
        lines, _ = files_of_tools()[name]
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        found.append({f"trace.{form.layout}": "\n".join(texts).encode() + b"\n"})
    return found


def _recordings() -> list[Files]:
    folder = DATA / "recordings"
    found = [_files_of(path) for path in sorted(folder.iterdir()) if path.is_file()]
    found += [_files_of(*sorted(path.iterdir())) for path in folder.iterdir() if path.is_dir()]
    return [files for files in found if files and sum(map(len, files.values())) < 200_000]


def _deployed(name: str) -> list[Files]:
    return [_files_of(*sorted((DATA / "deployments" / name.replace("@", "_")).iterdir()))]


def _written(simulation: spillway.Simulation, folder: Path, suffix: str) -> Files:
    path = folder / f"input.{suffix}"
    dump(simulation, path)
    content = _files_of(path)
    path.unlink()
    return content


def _configurations(suffix: str) -> list[Files]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = [
            _written(random_simulation(("readers", i)).simulation, Path(folder), suffix)
            for i in range(8)
        ]
    if suffix == "yaml":
        found += _examples("*.yaml")
    return found


def _results() -> list[Files]:
    found = []
    for i in range(3):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            result = simulate(random_simulation(("results", i), pressure="half").simulation, i)
            if result.has_requests:
                result.save(f"{folder}/input.npz")
                found.append(_files_of(Path(folder) / "input.npz"))
    return found


def _profiles() -> list[Files]:
    latency = instance.Roofline(constant_us=5000, token_us=20, decode_us=50)
    size = len(coefficients_of(latency))
    document = {
        "kind": "server_profile",
        "version": 1,
        "server": {"model": "m", "gpu": "h100"},
        "instance": instance.InstanceGroup(latency=latency).to_dict(),
        "async_scheduling": True,
        "turnaround_s": 0.001,
        "coefficients": {"constant_us": 5000.0, "token_us": 20.0, "decode_us": 50.0},
        "covariance_of_logs": [[0.01 * (i == j) for i in range(size)] for j in range(size)],
        "hull": [[0, 0], [20, 0], [20, 30000]],
        "runs": [{"name": "a", "sha256": "0", "requests": 9, "errors_percent": {"capacity": 1.5}}],
        "logs": [{"name": "l", "sha256": "0", "steps": 9, "error_percent": 2.0}],
        "left_out": ["x: too few"],
        "choices": [],
    }
    return [{"input.yaml": yaml.safe_dump(document).encode()}]


def _verdicts() -> list[Files]:
    entry = {
        "verdict": "not met",
        "date": "2026-11-27",
        "server": acceptance.fingerprint(instance.InstanceGroup()),
        "configuration": "c",
        "reason": "shed +3 points",
        "recording": {"sha256": "0"},
    }
    document = {"kind": "acceptance", "version": 1, "verdicts": [entry]}
    return [{"input.yaml": yaml.safe_dump(document).encode()}]


def _workers() -> list[Files]:
    return [{"input.csv": b"time_s,group,ready\n-5,0,2\n0,1,3\n60.5,1,0\n"}]


def _examples(pattern: str) -> list[Files]:
    """Each with the configuration that it may name."""
    return [
        _files_of(path, path.with_name(re.sub("_(study|sweep)", "", path.name)))
        for path in sorted(ROOT.glob(f"examples/{pattern}"))
    ]


def _tests_of(tool: str, name: str) -> Any:
    """The tests of a module of a system, which hold valid files."""
    return importlib.import_module(f"systems.{tool}.test_{name}")


def _loads() -> list[Files]:
    perf, guidellm = (_tests_of(tool, "load") for tool in ("inference_perf", "guidellm"))
    loads, datas = (perf.POISSON, perf.CLOSED), (perf.DATA, perf.PREFIXES)
    found = [{"load": load, "data": data} for load in loads for data in datas]
    return [{"input.json": _json(load)} for load in (*found, guidellm.scenario(), guidellm.OLD)]


def _pools() -> list[Files]:
    pool = _tests_of("servegen", "load")
    files = {"chunk-3-trace.csv": pool.TRACE.encode(), "chunk-3-dataset.json": _json(pool.DATASET)}
    return [files]


_JOURNAL, _KEPT = "journal.log", "sweep_journal.jsonl"


@functools.cache
def _journals() -> list[Files]:
    with tempfile.TemporaryDirectory() as name:
        study, sweep = Path(name, _JOURNAL), Path(name, _KEPT)
        small = Study(overloaded(), SMALL_SPACE, "goodput", seeds=1, storage=study)
        small.optimize(3, check=False)
        grid(overloaded(), {next(iter(SMALL_SPACE)): [4, 8]}, seeds=2, journal=sweep)
        return [_files_of(study, sweep)]


def _texts() -> list[Files]:
    lines = ("0.5", "12", "2024-05-10 00:00:00.009930+00:00", "-1.25e3", "1970-01-01T00:00:00Z")
    return [{"input.txt": "\n".join(lines).encode()}]


def _mapped() -> list[Files]:
    columns = {"arrival_s": "ts", "input_tokens": "in", "output_tokens": "out", "tenant": "name"}
    rows = b"ts,in,out,name\n0.5,10,3,a\n1.5,20,4,b\n"
    lines = b'{"ts": 0.5, "in": 10, "out": 3, "name": "a"}\n'
    measured = {
        "send_s": "at",
        "input_tokens": "n",
        "output_tokens": "m",
        "ttft_s": "t",
        "e2e_s": "e",
    }
    runs = b"at,n,m,t,e\n0.5,10,3,0.2,0.9\n1.5,20,4,0.25,1.1\n2.5,20,4,0.25,1.1\n"
    means = {
        "concurrency": "users",
        "requests_per_s": "rate",
        "itl_s": "t_ms",
        "input_tokens": "n",
        "output_tokens": "128",
    }
    points = b"users,rate,t_ms,n,tp,chip\n4,,10,512,1,a\n,2.5,11.5,512,2,a\n8,inf,12,512,1,b\n"
    return [
        {"columns.json": _json({"columns": means}), "input.csv": points},
        {"columns.json": _json({"columns": measured}), "input.csv": runs},
        {"columns.json": _json({"columns": columns, "time_unit": "s"}), "input.csv": rows},
        {"columns.json": _json({"columns": columns, "time_unit": "ms"}), "input.jsonl": lines},
    ]


# --- readers --------------------------------------------------------------------------------------


def _only(folder: Path) -> Path:
    """The file of a folder with one file, a study or sweep, or else the folder."""
    files = [path for path in folder.iterdir() if path.is_file()]
    chosen = [path for path in files if re.search("_(study|sweep)", path.name)] or files
    return chosen[0] if len(chosen) == 1 else folder


def _read_verdicts(folder: Path) -> object:
    return acceptance.marked(instance.InstanceGroup(), _only(folder))


def _read_mapped(folder: Path) -> object:
    try:
        reading = json.loads((folder / "columns.json").read_bytes())
    except (ValueError, RecursionError):
        return None  # no reader of Spillway: only what it holds is of interest
    (path,) = (file for file in folder.iterdir() if file.name != "columns.json")
    columns = reading.get("columns") if isinstance(reading, dict) else reading
    if not isinstance(columns, dict) or not all(isinstance(v, str) for v in columns.values()):
        return None
    unit = reading.get("time_unit")
    unit = unit if isinstance(unit, str) else "s"
    return _first_of(
        lambda: alike(lambda: read_trace(path, columns=columns, time_unit=unit).sha256),
        lambda: recordings.read_recordings(path, columns=columns),
        lambda: recordings.read_points(path, columns=columns),
    )


def _first_of(*functions: Callable[[], object]) -> object:
    """What the first of the functions that takes the files returns; all are tried."""
    found, last = [], None
    for function in functions:
        try:
            found.append(function())
        except DOCUMENTED as error:  # noqa: PERF203
            _check_message(error)
            last = error
    if last is not None and not found:
        raise last
    return found[0]


def _read_texts(folder: Path) -> object:
    """PyArrow reads texts as they are read one by one."""
    texts = _only(folder).read_bytes().decode("utf-8", "replace").split("\n")
    for fast, slow in (
        (arrow.instants, timestamp_to_ns),
        (lambda cells: arrow.decimals(cells, 9), lambda text: decimal_to_ns(text, 9)),
    ):
        for cells in (texts, *([text] for text in texts)):
            if (found := fast(pa.array(cells))) is not None:
                assert found.tolist() == list(map(slow, cells))
    return None


def _read_recordings(name: str) -> Callable[[Path], object]:
    form = RECORDINGS[name]

    def read(folder: Path) -> object:
        functions = (
            recordings.read_recordings,
            recordings.read_step_logs,
            recordings.read_histograms,
            recordings.read_points,
        )
        return _first_of(
            *(lambda reader=reader: reader(_only(folder), form.name) for reader in functions)  # type: ignore[misc]
        )

    return read


def _readers() -> Iterator[tuple[str, Reader]]:
    for name in TRACES:
        yield (
            f"trace {name}",
            Reader(
                lambda f, n=name: alike(lambda: read_trace(_only(f), format=n).sha256),
                lambda n=name: _trace(n),
            ),
        )
    yield (
        "trace of any format",
        Reader(
            lambda f: (
                alike(lambda: read_trace(_only(f), sort=True, skip_bad=True).sha256),
                read_columns(_only(f)),
            ),
            lambda: [files for name in TRACES for files in _trace(name)],
        ),
    )
    for name in RECORDINGS:
        if name in ("columns", "points"):  # read with a map, below
            continue
        yield f"recording {name}", Reader(_read_recordings(name), _recordings)
    yield "recordings", Reader(lambda f: recordings.read_recordings(_only(f)), _recordings)
    for target in TARGETS.values():  # their `read_pieces` and `read`
        for version in target.versions:
            name = f"{target.name}@{version}"
            yield (
                f"deployment {name}",
                Reader(lambda f, n=name: import_(f, system=n), lambda n=name: _deployed(n)),
            )
    for suffix in ("yaml", "json"):
        yield (
            f"configuration {suffix}",
            Reader(lambda f: spillway.load(_only(f)), lambda s=suffix: _configurations(s)),
        )
    yield "settings", Reader(lambda f: read_settings(_only(f)), lambda: _configurations("yaml"))
    yield "result", Reader(lambda f: Result.load(_only(f)).to_dict(), _results, (ValueError,))
    yield "study", Reader(lambda f: read_study(_only(f)), lambda: _examples("*_study.yaml"))
    yield "sweep", Reader(lambda f: read_sweep(_only(f)), lambda: _examples("*_sweep.yaml"))
    yield "journal of a study", Reader(lambda f: resolve(f / _JOURNAL).get_all_studies(), _journals)
    yield "journal of a sweep", Reader(lambda f: len(Measurements(f / _KEPT)), _journals)
    yield "profile", Reader(lambda f: Profile.load(_only(f)).text(), _profiles)
    yield "profile of a server", Reader(lambda f: read_profile(_only(f)), _profiles)
    yield "verdicts of recordings", Reader(_read_verdicts, _verdicts)
    yield "workers over time", Reader(lambda f: counts_of(_only(f), 2), _workers)
    yield "load", Reader(lambda f: read_load(_only(f)), _loads)
    yield "client pool", Reader(read_client_pool, _pools)
    yield "column map", Reader(_read_mapped, _mapped)
    yield "timestamps and decimals", Reader(_read_texts, _texts)


READERS: dict[str, Reader] = dict(_readers())


def _check_message(error: Exception) -> None:
    """An error is one line, or one per setting or format, without control characters."""
    text = re.split("\n(?:Closest|Formats tried):", str(error))[0]
    assert text, "an error says something"
    lines = len(error.violations) if isinstance(error, ConfigError) else 1  # type: ignore[attr-defined]
    assert text.count("\n") <= lines, f"{text.count(chr(10)) + 1} lines: {text[:200]!r}"
    assert "\x00" not in text, f"a control character: {text[:200]!r}"
    assert len(text) < 100_000, f"{len(text)} characters: {text[:200]!r}"


def outcome(reader: Reader, folder: Path) -> str:
    """What became of the files of a folder: "value" or "refused"; anything else is raised."""
    try:
        reader.read(folder)
    except reader.refuses as error:
        _check_message(error)
        return "refused"
    return "value"


# --- damage ---------------------------------------------------------------------------------------

VALUES: list[Any] = [
    *(None, True, -1, 0, 3, 2.5, float("inf"), float("nan"), "", "x", [], [1], {}, {"a": 1}),
    *("9" * 400, 2**63, 2**64, -(2**63) - 1, 1e308, 1e-320, 10**400, "\x00", "é", "a\nb", [[[]]]),
    *("1e999", "nan", "-5", "0x10", "1_000", "٣", "2024-02-30", [None], {"": None}, "inf"),
]
WORDS = [
    *("-1", "0", "1e999", "nan", "inf", "-inf", "9" * 400, "1e-320", "null", "true", "[]", "{}"),
    *(
        "\x00",
        "\ufeff",
        "\r",
        "\n",
        '"',
        "'",
        ",",
        ";",
        "\t",
        ":",
        "- ",
        "&a ",
        "*a",
        "<<: ",
        "!!x ",
    ),
    *("0x1F", "1_000", "٣", "9223372036854775808", "18446744073709551616", "[" * 3000),
    *("{" * 3000, '{"a":' * 2000, "2024-02-30T25:61:61Z", "1970-01-01", "+00:00", "--=", "=", "%s"),
    *(
        "9" * 5000,
        "# HELP ",
        "\\",
        "\\u0000",
        "\\ud800",
        "|",
        "> ",
        "---\n",
        "...",
        "~",
        "1e+",
        ".",
        "-",
        "+",
    ),
]
_RAW = [b"\xff\xfe", b"\xed\xa0\x80", b"\x80", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"]


def places_of(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of an object are, at any depth."""
    yield place
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from places_of(value, (*place, key))


def changed_at(content: Any, place: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The object with another value at a place."""
    if not place:
        return change(content)
    copied = content.copy()
    copied[place[0]] = changed_at(content[place[0]], place[1:], change)
    return copied


def _another(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.5:
        key = rng.choice(list(value))
        rest = {k: v for k, v in value.items() if k != key}
        return (
            rest if rng.random() < 0.5 else {**rest, rng.choice(("x", "", 1, str(key))): value[key]}
        )
    if isinstance(value, list) and value and rng.random() < 0.5:
        return rng.choice((value[1:], value * 2, value[::-1], [*value, rng.choice(VALUES)]))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) < 1e300 and rng.random() < 0.5:
        return rng.choice((-value, value + 1, value * 1e6, str(value), value * 0.5))
    return rng.choice(VALUES)


def _structured(text: str, rng: random.Random, *, is_json: bool) -> str | None:
    """With another value at a place of the document, or of a line's."""
    parse = json.loads if is_json else yaml.safe_load
    lines = text.split("\n")
    line = None
    try:
        content = parse(text)
    except (ValueError, yaml.YAMLError, RecursionError):
        if not is_json:
            return None
        line = rng.randrange(len(lines))
        try:
            content = parse(lines[line])
        except (ValueError, RecursionError):
            return None
    if not isinstance(content, dict | list):
        return None
    places = list(places_of(content))
    for _ in range(rng.randint(1, 3)):
        place = rng.choice(places)
        try:
            content = changed_at(content, place, lambda value: _another(value, rng))
        except (TypeError, KeyError, IndexError, AttributeError):
            continue  # an earlier change took the place away
    if is_json:
        shown = json.dumps(content)
    else:
        try:
            shown = yaml.safe_dump(content, sort_keys=False)
        except (yaml.YAMLError, ValueError):
            return None
    if line is None:
        return shown
    return "\n".join([*lines[:line], shown, *lines[line + 1 :]])


def _fields(text: str, rng: random.Random) -> str:
    """With another field, line or separator."""
    lines = text.split("\n")
    i = rng.randrange(len(lines))
    kind = rng.random()
    if kind < 0.6:
        fields = re.split(r"([,;\t =])", lines[i])
        fields[rng.randrange(len(fields))] = rng.choice(WORDS)
        lines[i] = "".join(fields)
    elif kind < 0.7:
        lines.insert(i, rng.choice(lines))
    elif kind < 0.8:
        del lines[i]
    elif kind < 0.9:
        j = rng.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
    else:
        return text.replace(",", rng.choice(";\t|"))
    return "\n".join(lines)


def _bytes(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    end = min(len(content), begin + rng.choice((0, 1, 1, 2, 8, 64)))
    inserted = rng.choice(
        (
            b"",
            rng.choice(WORDS).encode("utf-8", "surrogatepass"),
            rng.choice(_RAW),
            bytes([rng.randrange(256)]),
            content[begin:end] * 3,
            rng.choice(string.printable).encode(),
        )
    )
    if rng.random() < 0.05:
        return content[:begin]
    return content[:begin] + inserted + content[end:]


def damaged(files: Files, rng: random.Random) -> Files:
    """The files with one to three changes in one of them."""
    name = rng.choice(sorted(files))
    content = files[name]
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if kind < 0.3:
            content = _bytes(content, rng)
            continue
        try:
            text = content.decode()
        except UnicodeDecodeError:
            content = _bytes(content, rng)
            continue
        changed = None
        if kind < 0.75 and len(text) < 50_000:
            changed = _structured(text, rng, is_json=not name.endswith((".yaml", ".yml")))
        content = (changed if changed is not None else _fields(text, rng)).encode(
            "utf-8", "surrogatepass"
        )
    if rng.random() < 0.02:
        import gzip

        stream = io.BytesIO()
        with gzip.GzipFile(fileobj=stream, mode="wb") as file:
            file.write(content)
        content = stream.getvalue()
    return {**files, name: content}
