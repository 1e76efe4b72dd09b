"""Executes the notebooks and stores them with their outputs.

A notebook's source is notebooks/NAME.py (jupytext's percent format); notebooks/NAME.ipynb beside it
is rendered from it. Rendering twice with the same versions gives the same bytes. `--check` executes
every source and compares its outputs with the stored ones, without writing anything: texts must be
equal, and so must pictures that the same version of matplotlib drew.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.metadata
import io
import os
import re
import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
import nbclient
import nbformat
import numpy as np
from jupyter_client import KernelManager
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
LARGEST_BYTES = 400_000
MOST_PROCESSOR_S = 60
TIMEOUT_S = 300

_COLORS = 256
# Of a picture, this share may differ: other processors round other digits.
_PIXELS = 0.001

# The packages whose versions change outputs that are equal otherwise.
_DRAWING, _SEARCHING = "matplotlib", "optuna"

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """The sources of the notebooks, in order."""
    return sorted(FOLDER.glob("*.py"))


def read_source(path: Path) -> nbformat.NotebookNode:
    """The notebook of a source, without outputs; its cells are named by their positions."""
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": _KERNEL})
    for position, cell in enumerate(notebook.cells):
        cell.id = f"cell-{position:02d}"
        cell.metadata = nbformat.from_dict({})
    return notebook


@contextlib.contextmanager
def kernel() -> Iterator[KernelManager]:
    """A running kernel."""
    with tempfile.TemporaryDirectory() as sockets:
        # Unix sockets: no port conflicts between kernels, and no access from outside.
        manager = KernelManager(
            kernel_name=_KERNEL["name"], transport="ipc", ip=str(Path(sockets) / "kernel")
        )
        manager.start_kernel(cwd=sockets, env={**os.environ, "PYTHONPATH": _import_path()})
        try:
            yield manager
        finally:
            manager.shutdown_kernel(now=True)


def execute(notebook: nbformat.NotebookNode, running: KernelManager) -> None:
    """Executes a notebook in place, in an empty working directory.

    The kernel forgets the names of the notebook before, but not what that has imported.

    Raises nbclient.exceptions.CellExecutionError if a cell fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        client = nbclient.NotebookClient(
            notebook, km=running, timeout=TIMEOUT_S, record_timing=False, coalesce_streams=True
        )
        with client.setup_kernel():
            try:
                begin = f"import os\nos.chdir({directory!r})\n%reset -f"
                client.kc.execute_interactive(begin, silent=True, timeout=TIMEOUT_S)
                for index, cell in enumerate(notebook.cells):
                    client.execute_cell(cell, index)
            finally:
                client.kc.stop_channels()


def differences(path: Path) -> list[str]:
    """Differences between a source and its stored notebook, apart from the outputs."""
    stored_path = path.with_suffix(".ipynb")
    if not stored_path.exists():
        return [f"{stored_path.name} is missing"]
    stored = nbformat.read(stored_path, as_version=4)
    source = read_source(path)
    if len(stored.cells) != len(source.cells):
        return [
            f"{stored_path.name} has {len(stored.cells)} cells, {path.name} {len(source.cells)}"
        ]
    return [
        f"{stored_path.name}: {mine.id} is not that of {path.name}"
        for mine, theirs in zip(stored.cells, source.cells, strict=True)
        if (mine.cell_type, mine.source) != (theirs.cell_type, theirs.source)
    ]


def executed(path: Path) -> tuple[nbformat.NotebookNode, float]:
    """The notebook of a source with its outputs, and the processor time that they took."""
    notebook = read_source(path)
    before_s = _processor_s()
    with kernel() as fresh:
        execute(notebook, fresh)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    versions = {name: importlib.metadata.version(name) for name in (_DRAWING, _SEARCHING)}
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": _KERNEL, "language_info": {"name": "python"}, "versions": versions}
    )
    return notebook, _processor_s() - before_s


def render(path: Path) -> float:
    """Executes a source and stores the notebook beside it; returns the processor time."""
    notebook, took_s = executed(path)
    text = nbformat.writes(notebook) + "\n"
    _refuse_what_differs_elsewhere(text, path.name)
    if took_s > MOST_PROCESSOR_S:
        raise ValueError(f"{path.name}: takes {took_s:.0f} s of processor time")
    path.with_suffix(".ipynb").write_text(text, encoding="utf-8")
    return took_s


def check(path: Path) -> tuple[list[str], float]:
    """Executes a source; what differs from the stored notebook, and the processor time."""
    if found := differences(path):
        return found, 0
    stored = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    fresh, took_s = executed(path)
    return disagreements(stored, fresh), took_s


def disagreements(stored: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> list[str]:
    """The cells whose outputs differ, of two notebooks with the same cells.

    Pictures of another version of matplotlib count as equal, and so do all outputs of a notebook
    that searches with another version of Optuna.
    """
    before, now = (notebook.metadata.get("versions", {}) for notebook in (stored, fresh))
    searches = any("Study(" in cell.source for cell in fresh.cells)
    if searches and before.get(_SEARCHING) != now.get(_SEARCHING):
        return []
    compares_pictures = before.get(_DRAWING) == now.get(_DRAWING)
    found = []
    for mine, theirs in zip(stored.cells, fresh.cells, strict=True):
        outputs = [_comparable(cell) for cell in (mine, theirs)]
        texts, pictures = zip(*outputs, strict=True)
        if texts[0] != texts[1]:
            found.append(f"{mine.id}: {_first_difference(*texts)}")
        elif len(pictures[0]) != len(pictures[1]) or (
            compares_pictures and not all(map(_alike, *pictures))
        ):
            found.append(f"{mine.id}: another picture")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="which, e.g. 01_first_run (default: all)")
    parser.add_argument("--check", action="store_true", help="compare with the stored outputs")
    options = parser.parse_args(arguments)
    chosen = [path for path in sources() if not options.names or path.stem in options.names]
    status = 0
    for path in chosen:
        if options.check:
            found, took_s = check(path)
            status |= bool(found)
            print(f"{path.stem}: {took_s:.0f} s", *found, sep="\n  ", flush=True)
        else:
            took_s = render(path)
            size = path.with_suffix(".ipynb").stat().st_size
            print(f"{path.stem}: {took_s:.0f} s, {size / 1000:.0f} kB", flush=True)
    return status


def _processor_s() -> float:
    """Processor time of the kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _comparable(cell: nbformat.NotebookNode) -> tuple[list[str], list[str]]:
    """The texts of a cell's outputs, and its pictures in base64."""
    texts, pictures = [], []
    for output in cell.get("outputs", ()):
        data = output.get("data", {output.get("name", ""): output.get("text", "")})
        for kind, value in sorted(data.items()):
            (pictures if kind == "image/png" else texts).append(value)
    return texts, pictures


def _first_difference(stored: list[str], fresh: list[str]) -> str:
    """The first line that differs, of the texts of two outputs."""
    before, now = ("\n".join(texts).splitlines() for texts in (stored, fresh))
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"{old!r} is now {new!r}"
    return f"{len(before)} lines are now {len(now)}"


def _alike(stored: str, fresh: str) -> bool:
    """Whether hardly any pixel of two pictures differs."""
    images = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"), dtype=int)
        for png in (stored, fresh)
    ]
    if images[0].shape != images[1].shape:
        return False
    differs = np.abs(images[0] - images[1]).max(axis=-1) > 2
    return bool(differs.mean() <= _PIXELS)


def _import_path() -> str:
    # The kernel runs in another folder, where relative entries would be invalid.
    return os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)


def _smaller(png: str) -> str:
    """A figure, in base64, reduced to a palette, which takes a third of the space."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    stream = io.BytesIO()
    image.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        stream, "png", optimize=True
    )
    return base64.b64encode(stream.getvalue()).decode()


def _refuse_what_differs_elsewhere(text: str, name: str) -> None:
    """Raises ValueError for outputs that depend on the machine or the time, or are too large."""
    places = {str(FOLDER.parent), str(Path.home()), tempfile.gettempdir(), sys.prefix}
    for place in sorted(places):
        if place != "/" and place + "/" in text:
            raise ValueError(f"{name}: an output contains the path {place}")
    if address := re.search(r"\bat 0x[0-9a-f]+", text):
        raise ValueError(f"{name}: an output contains the address {address.group()}")
    if len(text.encode()) > LARGEST_BYTES:
        raise ValueError(f"{name}: larger than {LARGEST_BYTES:,} bytes; use smaller figures")


if __name__ == "__main__":
    sys.exit(main())
