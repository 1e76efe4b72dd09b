"""Whether the core takes longer to compile than it may: `make build-check`.

A cold build of the extension, in a folder of its own and without ccache, is measured in processor
time, by unit of compilation. Processor time depends on machine and compiler, and on what else runs;
therefore the limit is relative to a yardstick that is compiled in the same minutes: a fixed source
that includes the headers on which the build spends its time. The two are compared by the same
compiler with the same flags.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_FOLDER = _ROOT / "build" / "build-check"

LIMIT = 46.0
"""Processor time of the build over that of the yardstick: 140 s where the yardstick takes 3 s."""
_YARDSTICKS = 3
"""Before the build, and as many after it."""

YARDSTICK = """\
#include <Eigen/Dense>
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

using Setting = std::variant<bool, double, std::string, std::vector<double>>;

Eigen::VectorXd solve(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  return a.ldlt().solve(b);
}
std::map<std::string, Setting> sorted(std::vector<std::pair<std::string, Setting>> all) {
  std::sort(all.begin(), all.end());
  return {all.begin(), all.end()};
}
"""


def unit_of(object_file: str) -> str:
    """The unit of compilation behind an object file, e.g. `gateway_2`, `schema` or `bindings`."""
    name = Path(object_file).name.split(".")[0]
    if "_core.dir" in object_file and "spillway_core.dir" not in object_file:
        return "bindings"
    return name.removeprefix("unity_").removesuffix("_cxx")


def verdict(seconds: dict[str, float], yardstick_s: list[float], limit: float) -> tuple[bool, str]:
    """Whether the build passes, and a sentence on it."""
    total = sum(seconds.values())
    ratio = total / statistics.fmean(yardstick_s)
    text = (
        f"{total:.0f} s of processor time, {ratio:.1f} times the yardstick "
        f"({statistics.fmean(yardstick_s):.2f} s); the limit is {limit:g} times"
    )
    return ratio <= limit, text if ratio <= limit else f"{text}: FAILED"


def _launch(log: str, command: list[str]) -> int:
    """As the launcher of the compiler: appends its processor time to the log."""
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = command[command.index("-o") + 1] if "-o" in command else command[-1]
    with Path(log).open("a") as file:
        file.write(json.dumps([unit, used.ru_utime + used.ru_stime]) + "\n")
    return status


def _configure(log: Path) -> None:
    launcher = [sys.executable, "-S", str(Path(__file__).resolve()), "--launch", str(log)]
    command = ["cmake", "-S", str(_ROOT), "-B", str(_FOLDER), "-G", "Ninja"]
    command += ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"]
    command += [f"-DCMAKE_CXX_COMPILER_LAUNCHER={';'.join(launcher)}"]
    command += [f"-Dpybind11_DIR={_pybind11_folder()}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _pybind11_folder() -> str:
    import pybind11

    return pybind11.get_cmake_dir()


def _compile_yardstick() -> float:
    """Processor time of one compilation, with the flags of the core."""
    commands = json.loads((_FOLDER / "compile_commands.json").read_text())
    (core,) = [command for command in commands if command["file"].endswith("cluster/schema.cpp")]
    source = _FOLDER / "yardstick.cpp"
    source.write_text(YARDSTICK)
    words = core["command"].split()
    if "--launch" in words:  # CMake may name the launcher there, too
        words = words[words.index("--launch") + 2 :]
    words[words.index("-o") + 1] = str(source.with_suffix(".o"))
    words[words.index("-c") + 1] = str(source)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, cwd=core["directory"])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _measure(log: Path) -> tuple[dict[str, float], list[float]]:
    """Seconds by unit, and of the yardsticks."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    _configure(log)
    log.unlink(missing_ok=True)  # compilations of the configuration
    yardstick_s = [_compile_yardstick() for _ in range(_YARDSTICKS)]
    build = ["cmake", "--build", str(_FOLDER), "--target", "_core"]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    yardstick_s += [_compile_yardstick() for _ in range(_YARDSTICKS)]
    seconds: dict[str, float] = defaultdict(float)
    for line in log.read_text().splitlines():
        object_file, used_s = json.loads(line)
        if object_file.endswith(".o"):
            seconds[unit_of(object_file)] += used_s
    return seconds, yardstick_s


def main() -> int:
    """Command line; 1 if the build takes too long."""
    if sys.argv[1:2] == ["--launch"]:
        return _launch(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=LIMIT, help="times the yardstick")
    options = parser.parse_args()
    os.environ["CCACHE_DISABLE"] = "1"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    seconds, yardstick_s = _measure(_FOLDER.with_suffix(".log"))
    for unit, used_s in sorted(seconds.items(), key=lambda pair: -pair[1]):
        print(f"{unit:<16}{used_s:>8.1f} s")
    passes, text = verdict(seconds, yardstick_s, options.limit)
    print(f"build-check: {text}")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
