"""Client pools of ServeGen as generators."""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._core.workload import Client, Empirical, Gamma, RatePoint, Synthetic, Weibull
from spillway.config import filesystem
from spillway.config.classes import config_error
from spillway.config.limits import LONGEST_SPAN_S, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping


_PROCESSES: dict[str, tuple[type[Gamma | Weibull], float]] = {
    "Gamma": (Gamma, 0.001),
    "Weibull": (Weibull, 0.02),
}  # with the least cv
_HIGHEST_CV = 10
_HIGHEST_RATE = 1e9
_TRACE = re.compile(r"chunk-(\d+)-trace\.csv")
_LENGTHS = ("input_tokens", "output_tokens")
_FIELDS = 6  # begin of the window, rate, cv, process, two parameters of the process

_Weights = dict[int, float]  # of lengths in tokens


class _Window(NamedTuple):
    begin_s: int
    rate: float
    cv: float
    process: str  # "": no requests


def read_client_pool(
    folder: str | Path, *, begin_s: float = 0, end_s: float | None = None
) -> Synthetic:
    """Read a client pool of ServeGen, such as its folder data/language/m-small.

    Each pair of files chunk-N-trace.csv and chunk-N-dataset.json becomes a client. Its rate
    profile has the rates (requests/s) of the windows of the trace. A client has one arrival process
    and one distribution per length, whereas those of ServeGen change from window to window: the
    process is the one with the most requests, its coefficient of variation and the weights of the
    lengths are means over the windows, by their requests; a coefficient above 10 is read as 10.
    Read a part of the day to keep what is typical of it. Fields other than input_tokens and
    output_tokens are ignored.

    Parameters
    ----------
    folder : str or Path
        The folder with the files.
    begin_s, end_s : float
        The part of the pool to read, in seconds since its first window; by default all. The
        workload begins at `begin_s`.

    Returns
    -------
    Synthetic
        One client per chunk with requests, as long as the part.

    Raises
    ------
    ConfigError
        A file cannot be read, or a value is invalid; there is no client with requests.

    """
    folder = Path(folder)
    last_s = math.inf if end_s is None else end_s
    if not 0 <= begin_s < last_s:
        allowed = "must be >= 0 and before end_s"
        raise config_error([("begin_s", f"{begin_s!r:.40}", allowed)])
    found: list[Client] = []
    longest_s = 0.0
    for number, path in _chunks(folder):
        windows = _windows(path)
        step_s = windows[-1].begin_s - windows[-2].begin_s if len(windows) > 1 else 600
        edges_s = [*(window.begin_s for window in windows), windows[-1].begin_s + step_s]
        longest_s = max(longest_s, edges_s[-1])
        data = path.with_name(f"chunk-{number}-dataset.json")
        client = _client(f"chunk-{number}", windows, edges_s, (begin_s, last_s), data)
        if client is not None:
            found.append(client)
    if not found:
        allowed = "must hold clients with requests: chunk-N-trace.csv and chunk-N-dataset.json"
        raise config_error([(filesystem.shown(folder), "", allowed)])
    return Synthetic(duration_s=min(last_s, longest_s) - begin_s, clients=found)


def _chunks(folder: Path) -> list[tuple[int, Path]]:
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise filesystem.cannot("read", folder, error) from error
    matches = [(_TRACE.fullmatch(path.name), path) for path in paths]
    return sorted((int(match[1]), path) for match, path in matches if match)


def _refuse(path: Path, place: str, value: Any, allowed: str) -> Exception:
    return config_error([(f"{filesystem.shown(path)} {place}", f"{value!r:.40}", allowed)])


def _windows(path: Path) -> list[_Window]:
    """Return the windows of a trace, which ascend."""
    found: list[_Window] = []
    for number, row in enumerate(csv.reader(filesystem.read_text(path).splitlines()), start=1):
        place = f"line {number}"
        if len(row) != _FIELDS:
            raise _refuse(path, place, ",".join(row), f"must hold {_FIELDS} fields")
        begin_s = _number(path, f"{place}, window", row[0], LONGEST_SPAN_S)
        if begin_s != int(begin_s) or (found and begin_s <= found[-1].begin_s):
            allowed = "must be whole seconds that ascend"
            raise _refuse(path, f"{place}, window", row[0], allowed)
        process = row[3].strip()
        if process and process not in _PROCESSES:
            allowed = f"must be {' or '.join(_PROCESSES)}, or empty"
            raise _refuse(path, f"{place}, process", process, allowed)
        rate = _number(path, f"{place}, rate", row[1], _HIGHEST_RATE) if process else 0.0
        cv = _number(path, f"{place}, cv", row[2], math.inf) if process else 0.0
        found.append(_Window(int(begin_s), rate, cv, process if rate else ""))
    if not found:
        raise _refuse(path, "line 1", "", "must hold windows")
    return found


def _number(path: Path, place: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most or math.isinf(value):
        limit = "" if math.isinf(most) else f" and <= {most:g}"
        raise _refuse(path, place, text, f"must be a number >= 0{limit}")
    return value


def _client(
    name: str, windows: list[_Window], edges_s: list[int], span_s: tuple[float, float], data: Path
) -> Client | None:
    """Return a client for a part of its windows; None if it sends nothing in it."""
    begin_s, end_s = max(span_s[0], edges_s[0]), min(span_s[1], edges_s[-1])
    points: list[tuple[float, float]] = []
    weights: list[tuple[_Window, float]] = []
    for window, low, high in zip(windows, edges_s, edges_s[1:], strict=False):
        low_s, high_s = max(low, begin_s), min(high, end_s)
        if low_s < high_s:
            points += [(low_s - span_s[0], window.rate), (high_s - span_s[0], window.rate)]
            weights.append((window, window.rate * (high_s - low_s)))
    requests = math.fsum(weight for _, weight in weights)
    if not requests:
        return None
    lengths = _mixed(data, [pair for pair in weights if pair[1]])
    if lengths is None:
        return None
    duration_s = end_s - begin_s
    mean = requests / duration_s
    by_process = {
        name: math.fsum(weight for window, weight in weights if window.process == name)
        for name in _PROCESSES
    }
    make, least_cv = _PROCESSES[max(by_process, key=lambda process: by_process[process])]
    cv = math.fsum(window.cv * weight for window, weight in weights) / requests
    start_s = begin_s - span_s[0]
    return Client(
        name=name,
        requests_per_s=mean,
        start_s=start_s,
        duration_s=duration_s,
        rate_profile=[RatePoint(at_s=at_s - start_s, factor=rate / mean) for at_s, rate in points],
        arrivals=make(cv=min(max(cv, least_cv), _HIGHEST_CV)),
        input_tokens=_empirical(lengths[0]),
        output_tokens=_empirical(lengths[1]),
    )


def _empirical(weights: _Weights) -> Empirical:
    return Empirical(values=list(weights), weights=list(weights.values()))


def _mixed(path: Path, windows: list[tuple[_Window, float]]) -> list[_Weights] | None:
    """Return the weights of both lengths over windows; None if none of them has lengths."""
    try:
        root = json.loads(filesystem.read_text(path))
    except (ValueError, RecursionError) as error:
        shown = filesystem.shown(path)
        raise config_error([(shown, "", f"not valid JSON: {error}")]) from error
    if not isinstance(root, dict) or not all(key.isascii() and key.isdigit() for key in root):
        raise _refuse(path, "", root, "must be an object of windows in whole seconds")
    known: dict[int, list[_Weights]] = {}
    for key in sorted(root, key=int):
        parsed = [_parsed(path, f"{key}.{field}", root[key], field) for field in _LENGTHS]
        if all(parsed):
            known[int(key)] = parsed
    total: list[_Weights] = [{}, {}]
    for window, requests in windows:
        # The lengths of a window hold until the next one with lengths.
        at_s = max((start_s for start_s in known if start_s <= window.begin_s), default=None)
        for mixed, found in zip(total, known.get(-1 if at_s is None else at_s, ()), strict=False):
            share = requests / math.fsum(found.values())
            for tokens, weight in found.items():
                mixed[tokens] = mixed.get(tokens, 0.0) + weight * share
    return [dict(sorted(weights.items())) for weights in total] if all(total) else None


def _parsed(path: Path, place: str, fields: Any, field: str) -> _Weights:
    """Return the lengths of one window; empty if it has none."""
    text = fields.get(field) if isinstance(fields, dict) else None
    allowed = 'must be text such as "{120: 0.25, 340: 0.75}"'
    if not isinstance(text, str):
        raise _refuse(path, place, text, allowed)
    try:
        found: Mapping[Any, Any] = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise _refuse(path, place, text, allowed) from error
    least = 1 if field == "input_tokens" else 0
    if not isinstance(found, dict) or not all(
        type(tokens) is int
        and 0 <= tokens <= MAX_TOKENS
        and type(weight) in (int, float)
        and 0 <= weight < math.inf
        for tokens, weight in found.items()
    ):
        raise _refuse(path, place, text, allowed)
    return {max(tokens, least): float(weight) for tokens, weight in found.items() if weight}
