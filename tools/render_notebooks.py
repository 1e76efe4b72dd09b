"""Executes the notebooks and stores them with their outputs.

A notebook's source is notebooks/NAME.py (jupytext's percent format); notebooks/NAME.ipynb beside it
is rendered from it. Rendering twice with the same versions gives the same bytes. `--check` compares
the cells of every stored notebook with its source, without executing anything.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext
import nbclient
import nbformat
from jupyter_client import KernelManager
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
LARGEST_BYTES = 400_000
TIMEOUT_S = 300

_COLORS = 256

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


def render(path: Path) -> None:
    """Executes a source and stores the notebook beside it."""
    notebook = read_source(path)
    with kernel() as fresh:
        execute(notebook, fresh)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    )
    text = nbformat.writes(notebook) + "\n"
    _refuse_what_differs_elsewhere(text, path.name)
    path.with_suffix(".ipynb").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="which, e.g. 01_first_run (default: all)")
    parser.add_argument("--check", action="store_true", help="compare stored notebooks and sources")
    options = parser.parse_args(arguments)
    chosen = [path for path in sources() if not options.names or path.stem in options.names]
    if options.check:
        found = [difference for path in chosen for difference in differences(path)]
        print("\n".join(found) or f"{len(chosen)} notebooks agree with their sources")
        return 1 if found else 0
    for path in chosen:
        render(path)
        print(f"{path.stem}.ipynb: {path.with_suffix('.ipynb').stat().st_size / 1000:.0f} kB")
    return 0


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
