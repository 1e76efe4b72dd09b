"""Small files of load generators, written by these tools themselves against a stub server.

    python -m tools.specimens [TOOL[-VERSION[/CASE]] …] [--list] [--store] [--newest]

Installs each tool in an environment of its own below `build/specimens`, runs each case of its
recipe, and stores what it wrote in `tests/data/specimens/TOOL-VERSION/CASE`, with
`specimen.json` (command, what the server did, facts of the client) and `expected.json` (the tool's
own figures). Without a name: all cases that are not stored yet. `--newest` stores nothing: it runs
the newest version of each tool, where that is not stored yet, and prints the keys that its files
have lost or gained since the newest stored one. Exit status 1: a tool failed, or a file has lost a
key.

Needs a package index, and Python 3.11 and 3.13 on the path, or the right to download them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import aiperf, guidellm, inference_perf, sglang, tokenizer, vllm
from .server import serving

if TYPE_CHECKING:
    from .recipe import Case, Recipe

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / "build" / "specimens"
_STORED = _ROOT / "tests" / "data" / "specimens"
_TOKENIZER = _FOLDER / "tokenizer"
_DID = "did.json"
_LIMIT_S = 400
_LARGE_BYTES = 40_000

RECIPES: dict[str, Recipe] = {
    "aiperf": aiperf.RECIPE,
    "guidellm": guidellm.RECIPE,
    "inference-perf": inference_perf.RECIPE,
    "sglang": sglang.RECIPE,
    "vllm": vllm.RECIPE,
}


def _installer() -> Path:
    """The program uv, whose environments share files."""
    folder = _FOLDER / "uv"
    if not (folder / "bin" / "uv").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", "uv"], check=True)
    return folder / "bin" / "uv"


def environment(tool: str, version: str) -> Path:
    """The folder with the programs of a tool, which is installed if it is missing."""
    recipe = RECIPES[tool]
    folder = _FOLDER / "environments" / f"{tool}-{version}"
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        install = _installer()
        subprocess.run([install, "venv", "--quiet", "--python", recipe.python, folder], check=True)
        into: list[str | Path] = [
            install,
            "pip",
            "install",
            "--quiet",
            "--python",
            folder / "bin" / "python",
        ]
        subprocess.run([*into, *recipe.packages(version)], check=True)
        done.touch()
    return folder / "bin"


def _scrubbed(text: str) -> str:
    """The text without the paths and names of this machine."""
    for found, instead in (
        (f"{_FOLDER}/", ""),
        (platform.platform(), "Linux"),
        (platform.node(), "host"),
    ):
        text = text.replace(found, instead)
    if left := [
        word for word in (str(_ROOT), str(Path.home()), platform.release()) if word in text
    ]:
        raise ValueError(f"{left} is left in the output")
    return text


def _work(tool: str, version: str, name: str) -> Path:
    return _FOLDER / "runs" / f"{tool}-{version}" / name


def run(tool: str, version: str, name: str, case: Case) -> None:
    """Runs a case; the whole output stays in the folder of the run."""
    recipe = RECIPES[tool]
    programs = environment(tool, version)
    work = _work(tool, version, name)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with serving(case.behavior) as server:

        def filled(text: str) -> str:
            text = text.replace("{url}", server.url).replace(
                "{port}", str(server.server_address[1])
            )
            return text.replace("{tokenizer}", str(_TOKENIZER))

        for file, text in case.files.items():
            (work / file).write_text(filled(text), encoding="utf-8")
        # Without bytecode each of a tool's processes compiles all that it imports.
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        variables |= {"PATH": f"{programs}:{os.environ['PATH']}", **recipe.environment}
        with (work / "output.log").open("w", encoding="utf-8") as log:
            subprocess.run(
                [shutil.which(case.command[0], path=variables["PATH"]) or case.command[0]]
                + [filled(word) for word in case.command[1:]],
                cwd=work,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_LIMIT_S,
                check=True,
            )
        today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
        did = {"command": case.command, "server": server.did(), "date": today}
    (work / _DID).write_text(json.dumps(did), encoding="utf-8")


def store(tool: str, version: str, name: str, case: Case, folder: Path = _STORED) -> None:
    """Stores what the tool wrote in the last run of a case."""
    recipe = RECIPES[tool]
    work = _work(tool, version, name)
    target = folder / f"{tool}-{version}" / name
    shutil.rmtree(target, ignore_errors=True)
    kept: list[str] = []
    for pattern, small in recipe.keep.items():
        for path in sorted(work.glob(pattern)):
            text = _scrubbed(small(path.read_text(encoding="utf-8")))
            relative = path.relative_to(work)
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).write_text(text, encoding="utf-8")
            kept.append(str(relative))
            if len(text) > _LARGE_BYTES:
                print(f"    {relative}: {len(text):,} bytes", flush=True)
    if not kept:
        raise ValueError(f"no output in {work}")
    facts: dict[str, Any] = {
        "tool": tool,
        "version": version,
        **({"inputs": dict(case.files)} if case.files else {}),
        "client": case.client,
        **json.loads((work / _DID).read_text(encoding="utf-8")),
        "files": kept,
        "changes": recipe.changes,
        "scrubbed": "paths, name and system of the machine",
    }
    for file, found in (("specimen.json", facts), ("expected.json", recipe.expected(work))):
        (target / file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def write_table() -> None:
    """Writes the table of the README, after what is stored."""
    rows = []
    for folder in sorted(path for path in _STORED.iterdir() if path.is_dir()):
        specimens = sorted(folder.glob("*/specimen.json"))
        facts = json.loads(specimens[0].read_text(encoding="utf-8"))
        cases = ", ".join(f"`{path.parent.name}`" for path in specimens)
        rows.append(f"| {facts['tool']} | {facts['version']} | {cases} |\n")
    readme = _STORED / "README.md"
    text = readme.read_text(encoding="utf-8")
    table = re.compile(r"(?<=\|---\|---\|---\|\n)(\|.*\n)*")
    readme.write_text(table.sub("".join(rows), text), encoding="utf-8")


def _keys(found: Any, place: str) -> set[str]:
    """The paths of all keys, whatever the position in a list."""
    if isinstance(found, dict):
        inner = [_keys(value, f"{place}.{key}") for key, value in found.items()]
        return {f"{place}.{key}" for key in found}.union(*inner)
    if isinstance(found, list):
        return set().union(*(_keys(value, f"{place}[]") for value in found))
    return set()


def keys(folder: Path) -> set[str]:
    """The keys of all files of a specimen."""
    facts = json.loads((folder / "specimen.json").read_text(encoding="utf-8"))
    found: set[str] = set()
    for name in facts["files"]:
        text = (folder / name).read_text(encoding="utf-8")
        if name.endswith(".json"):
            found |= _keys(json.loads(text), name)
        elif name.endswith(".jsonl"):
            found |= _keys([json.loads(line) for line in text.splitlines()], name)
    return found


def newest(tool: str) -> str:
    """The newest version that the package index has."""
    command = [sys.executable, "-m", "pip", "index", "versions", tool]
    command += ["--python-version", RECIPES[tool].python, "--disable-pip-version-check"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.match(rf"{tool} \((\S+)\)", shown)
    if found is None:
        raise ValueError(f"no version of {tool} in {shown!r}")
    return found[1]


def compare_newest(tool: str) -> bool:
    """Whether the files of a tool's newest version have all keys of the newest stored one."""
    known, version = RECIPES[tool].versions[-1], newest(tool)
    if version == known:
        print(f"{tool} {version} is stored")
        return True
    same = True
    folder = _FOLDER / "newest"
    for name, case in RECIPES[tool].cases(known).items():
        run(tool, version, name, case)
        store(tool, version, name, case, folder)
        before = keys(_STORED / f"{tool}-{known}" / name)
        after = keys(folder / f"{tool}-{version}" / name)
        for change, changed in (("lost", before - after), ("gained", after - before)):
            for key in sorted(changed):
                print(f"{tool} {known} → {version}, {name}: {change} {key}", flush=True)
        same &= before <= after
    return same


def _chosen(names: list[str]) -> list[tuple[str, str, str, Case]]:
    """The cases whose names begin so; without names those that are not stored."""
    return [
        (tool, version, name, case)
        for tool, recipe in RECIPES.items()
        for version in recipe.versions
        for name, case in recipe.cases(version).items()
        if any(
            re.match(rf"{re.escape(chosen)}(?![\w.])", f"{tool}-{version}/{name}")
            for chosen in names
        )
        or (not names and not (_STORED / f"{tool}-{version}" / name).exists())
    ]


def main() -> int:
    """Command line; 1 if a tool failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="TOOL[-VERSION[/CASE]]")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--store", action="store_true", help="what earlier runs wrote, if any")
    parser.add_argument(
        "--newest", action="store_true", help="compare newer versions, store nothing"
    )
    options = parser.parse_args()
    if options.list:
        print(
            "\n".join(
                f"{tool}-{version}/{name}" for tool, version, name, _ in _chosen(options.names)
            )
        )
        return 0
    tokenizer.write(_TOKENIZER)
    if options.newest:
        lost = [tool for tool in RECIPES if not compare_newest(tool)]
        return 1 if lost else 0
    failed = 0
    for tool, version, name, case in _chosen(options.names):
        print(f"{tool}-{version}/{name}", flush=True)
        try:
            if not (options.store and (_work(tool, version, name) / _DID).exists()):
                run(tool, version, name, case)
            store(tool, version, name, case)
        except (subprocess.SubprocessError, OSError, ValueError, LookupError) as error:
            failed += 1
            print(f"    FAILED: {error!r}", flush=True)
    write_table()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
