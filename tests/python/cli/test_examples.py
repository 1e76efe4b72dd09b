"""`spillway examples`: the files of examples/ out of the installed package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.paths import ROOT

from spillway import cli

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

EXAMPLES = ROOT / "examples"
SHIPPED = {".csv", ".json", ".py", ".sh", ".yaml"}


def contents(folder: Path) -> Mapping[str, bytes]:
    """The examples in a folder by their names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in SHIPPED
    }


def test_examples_are_those_of_the_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "examples"
    assert cli.main(["examples", str(folder)]) == 0
    held = contents(EXAMPLES)
    assert contents(folder) == held
    assert sum(path.is_file() for path in folder.rglob("*")) == len(held) > 30
    first = folder / "first_run.py"
    assert capsys.readouterr().out == f"wrote {len(held)} files; try: python {first}\n"
    assert first.exists()


def test_examples_are_listed_with_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    summaries = {line.split()[0]: line.partition("  ")[2].strip() for line in lines}
    assert summaries.keys() == contents(EXAMPLES).keys()
    data = (".csv", ".json")
    assert [name for name in summaries if not summaries[name]] == [
        name for name in summaries if name.endswith(data)
    ]
    unfinished = [name for name, text in summaries.items() if text and text[-1] not in ".?"]
    assert unfinished == []
    assert max(map(len, lines)) < 140


def test_an_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "requests.csv"
    own.write_text("mine")
    assert cli.main(["examples", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"spillway: {own}: already exists; nothing is written\n"
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
