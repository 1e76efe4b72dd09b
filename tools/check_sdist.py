"""Whether the source distribution builds what is installed here, without compiling all of it again.

    python tools/check_sdist.py SDIST WHEEL BUILD_DIR

WHEEL was made from the checkout, and its extension compiled in BUILD_DIR. SDIST is unpacked and
made into a wheel with its build requirements alone, in an isolated environment; of the extension,
only one source is compiled there. The commands that would compile and link the rest must be those
that BUILD_DIR used, and every file that they read must be in SDIST, byte for byte. Apart from the
extension, the two wheels must be equal. SDIST has at most 2 MB. `make test-dist-full` compiles all
of it instead.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from cmake import CMAKE_BIN_DIR

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
MOST_BYTES = 2_000_000
# Compiled as a sample: it needs Eigen, which is a build requirement.
SAMPLE = "cpp/CMakeFiles/spillway_core.dir/Unity/unity_with_eigen_cxx.cxx.o"


class Build:
    """A folder in which CMake has configured the sources of another."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._source = source
        self.folder = folder

    def common(self, text: str) -> str:
        """`text` without what differs between equal builds: the folders and the environment."""
        text = text.replace(str(self.folder), "BUILD").replace(str(self._source), "SOURCE")
        return re.sub(r"[^\s=\"']*/site-packages\b", "SITE", text)

    def commands(self) -> list[str]:
        """What compiles and links the extension, sorted."""
        found = self._ninja("commands", "_core").splitlines()
        return sorted(self.common(line) for line in found if " -E " not in line)

    def sources_read(self) -> dict[str, set[Path]]:
        """The files that the compiler read, by object file; only of what is compiled."""
        found: dict[str, set[Path]] = {}
        files: set[Path] = set()
        for line in self._ninja("deps").splitlines():
            if line.startswith("    "):
                files.add((self.folder / line.strip()).resolve())
            elif line:
                files = found.setdefault(line.split(":")[0], set())
        return found

    def _ninja(self, tool: str, *arguments: str) -> str:
        command = [BIN / "ninja", "-C", self.folder, "--quiet", "-t", tool, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def wheel_of(source: Path, build: Path) -> Path:
    """Makes the wheel of `source` as pip does for users, but compiles only the sample."""
    out = build.with_name(f"{build.name}-wheel")
    options = {"build-dir": build, "build.targets": SAMPLE, "install.components": "none"}
    settings = [f"--config-settings={name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps",
               "--wheel-dir", out, *settings, source]  # fmt: skip
    # The CMake of the checkout: others put options in another order.
    path = os.pathsep.join((CMAKE_BIN_DIR, os.environ["PATH"]))
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": path},
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout}\nno wheel can be made from the sdist")
    (wheel,) = out.glob("*.whl")
    return wheel


def differing_commands(here: Build, there: Build) -> list[str]:
    """The lines of a diff between the commands of two builds; none if they are equal."""
    return [
        line
        for line in difflib.unified_diff(
            here.commands(), there.commands(), "checkout", "sdist", n=0
        )
        if line[0] in "+-"
    ]


def differing_sources(here: Build, there: Build, unpacked: Path) -> list[str]:
    """What is wrong with the files below the checkout that the compiler read."""
    read = here.sources_read()
    objects = re.findall(r" -o (\S+\.o)\b", "\n".join(here.commands()))
    wrong = [f"{name}: no record of what it was compiled from" for name in {*objects} - {*read}]
    if not objects:
        wrong.append(f"{here.folder}: nothing is compiled there")
    environment = Path(sys.prefix).resolve()
    for path in sorted(set().union(*(read.get(name, set()) for name in objects))):
        if path.is_relative_to(here.folder):  # written by CMake
            twin = there.folder / path.relative_to(here.folder)
            equal = twin.exists() and there.common(twin.read_text()) == here.common(
                path.read_text()
            )
        elif path.is_relative_to(ROOT) and not path.is_relative_to(environment):
            twin = unpacked / path.relative_to(ROOT)
            equal = twin.exists() and twin.read_bytes() == path.read_bytes()
        else:
            continue
        if not equal:
            state = "differs" if twin.exists() else "is missing"
            wrong.append(f"{path.relative_to(ROOT)}: {state} in the sdist")
    return wrong


def differing_files(here: Path, there: Path) -> list[str]:
    """What differs between two wheels, apart from the extension and the list of files."""
    contents = []
    for wheel in (here, there):
        with zipfile.ZipFile(wheel) as archive:
            contents.append(
                {
                    name: archive.read(name)
                    for name in archive.namelist()
                    if not name.endswith((".so", ".dist-info/RECORD"))
                }
            )
    first, second = contents
    return [
        f"{name}: the wheels differ"
        for name in sorted({*first, *second})
        if first.get(name) != second.get(name)
    ]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sdist", type=Path, metavar="SDIST")
    parser.add_argument("wheel", type=Path, metavar="WHEEL")
    parser.add_argument("build", type=Path, metavar="BUILD_DIR")
    arguments = parser.parse_args()
    folder = arguments.sdist.resolve().parent
    with tarfile.open(arguments.sdist) as archive:
        # Python 3.10 and early patches of 3.11 may lack the filter.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safely)  # type: ignore[arg-type]
    unpacked = folder / arguments.sdist.name.removesuffix(".tar.gz")
    here = Build(ROOT, arguments.build.resolve())
    there = Build(unpacked, folder / "build")
    wheel = wheel_of(unpacked, there.folder)
    wrong = differing_commands(here, there)
    wrong += differing_sources(here, there, unpacked)
    wrong += differing_files(arguments.wheel, wheel)
    if (size := arguments.sdist.stat().st_size) > MOST_BYTES:
        wrong.append(f"{arguments.sdist.name}: {size:,} bytes, more than {MOST_BYTES:,}")
    for line in wrong:
        print(line)
    if not wrong:
        files = {path for paths in here.sources_read().values() for path in paths}
        same = f"the same {len(here.commands())} commands, {len(files)} files"
        print(f"{arguments.sdist.name}: {same}; {size:,} bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
