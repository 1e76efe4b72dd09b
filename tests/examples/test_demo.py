"""What `make demo` shows: the progress of the installation, and the noisy neighbor."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spillway

_ROOT = Path(__file__).parents[2]
_FOLDERS = [str(_ROOT / "examples"), str(_ROOT / "tools")]
sys.path[:0] = _FOLDERS
try:
    import noisy_neighbor_demo as demo
    import pip_progress
finally:
    del sys.path[: len(_FOLDERS)]

if TYPE_CHECKING:
    from collections.abc import Callable

# --- the noisy neighbor ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs() -> demo.Runs:
    return {name: spillway.simulate(simulation) for name, simulation in demo.simulations().items()}


def run_demo(folder: Path, *, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import runpy\n{before}\nrunpy.run_path({demo.__file__!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(spillway.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_demo_shows_both_and_draws_them(tmp_path: Path, runs: demo.Runs) -> None:
    pytest.importorskip("matplotlib")
    ended = run_demo(tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert demo.table(runs) in ended.stdout
    assert " ".join(demo.findings(runs)) in ended.stdout.replace("\n", " ")
    assert max(map(len, ended.stdout.splitlines())) < 100
    pictures = ("noisy_neighbor_light.svg", "noisy_neighbor_dark.svg")
    assert ended.stdout.endswith(f"\nPictures: {' and '.join(pictures)}\n")
    light, dark = ((tmp_path / name).read_text() for name in pictures)
    assert light.count(demo.INKS["light"]) == dark.count(demo.INKS["dark"]) > 10
    shapes = [re.sub(r"(#|id=\")[0-9a-z]{6,}", "", text) for text in (light, dark)]
    assert shapes[0] == shapes[1]


@pytest.mark.slow
def test_a_picture_of_other_figures_is_drawn_again(tmp_path: Path, runs: demo.Runs) -> None:
    pytest.importorskip("matplotlib")
    kept, stale = (tmp_path / f"noisy_neighbor_{theme}.svg" for theme in demo.INKS)
    kept.write_text(f"a picture of\n{demo.table(runs)}")
    stale.write_text(f"a picture of\n{demo.table(runs).replace('48.0%', '48.1%')}")
    assert demo.pictures(runs, tmp_path) == [kept, stale]
    assert kept.read_text().startswith("a picture of")
    assert stale.read_text().startswith("<?xml")


def test_demo_does_without_matplotlib(tmp_path: Path, runs: demo.Runs) -> None:
    ended = run_demo(tmp_path, before="import sys; sys.modules['matplotlib'] = None")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert demo.table(runs) in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("No picture: it needs matplotlib")
    assert list(tmp_path.iterdir()) == []


def test_readme_shows_these_figures(runs: demo.Runs) -> None:
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    assert " ".join(demo.findings(runs)) in readme.replace("\n", " ")
    for theme in demo.INKS:
        path = f"examples/pictures/noisy_neighbor_{theme}.svg"
        assert f'="{path}"' in readme
        picture = (_ROOT / path).read_text(encoding="utf-8")
        assert demo.table(runs) in picture, "run `make demo`"
        assert len(picture) < 100_000


def test_demo_compares_equal_requests(runs: demo.Runs) -> None:
    without, protected = (result.requests for result in runs.values())
    for column in ("arrival_s", "tenant", "input_tokens"):
        assert (without[column] == protected[column]).all()
    # All are over soon after the last has come, so a longer run would show the same burst.
    assert all(result.summary()["unfinished"] == 0 for result in runs.values())
    assert all(result.end_s < demo.DURATION_S + 10 for result in runs.values())


@pytest.mark.parametrize("seed", range(5))
def test_demo_holds_for_other_seeds(seed: int) -> None:
    without, protected = (
        spillway.simulate(each, seed).by_tenant() for each in demo.simulations().values()
    )
    for name in ("gold", "silver"):
        assert without[name]["goodput"] < 0.7
        assert protected[name]["goodput"] > 0.95
        assert protected[name]["rejected"] == 0
    assert protected["bronze"]["goodput"] > without["bronze"]["goodput"] + 0.1
    assert protected["bronze"]["rejected"] > 1000


def test_demo_says_what_the_figures_say(runs: demo.Runs) -> None:
    without, protected = runs.items()
    raised, shed, of_all = demo.findings(runs)
    assert re.match(
        r"The gateway raises the share in time of gold \(.* → .*\), silver .* and bronze ", raised
    )
    assert re.fullmatch(r"It sheds \d+\.\d% of bronze's requests\.", shed)
    lowered, shed, reverse = demo.findings(dict((protected, without)))
    assert lowered.startswith("The gateway lowers the share in time of gold (9")
    assert "raises" not in lowered
    assert shed == "It sheds nothing."
    assert re.findall(r"[\d.]+%", of_all) == re.findall(r"[\d.]+%", reverse)[::-1]
    unchanged = demo.findings({"a": without[1], "b": without[1]})[0]
    assert unchanged.startswith("The gateway hardly changes the share in time of gold (")


# --- the progress of an installation --------------------------------------------------------------

LOG = [
    "Processing /somewhere",
    "Collecting numpy>=1.26",
    "  Downloading numpy-2.0-cp311.whl (19 MB)",
    "  [0/2] Re-checking globbed directories...",
    *(f"  [{i}/40] c++ -c file_{i}.cpp" for i in range(1, 41)),
    "Installing collected packages: numpy",
    "Successfully installed numpy-2.0",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    display = pip_progress.Display(stream)
    for stage, per_cent in pip_progress.stages(LOG):
        display.show(stage, per_cent)
    display.clear()
    return stream.getvalue()


def test_progress_is_a_line_for_every_tenth() -> None:
    lines = shown(io.StringIO()).splitlines()
    matches = [re.fullmatch(r"  compiling: (\d+) of 40 \(0 min 00 s\)", line) for line in lines]
    assert [int(match[1]) for match in matches if match] == [1, *range(4, 41, 4)]
    assert all(matches)


def test_progress_is_one_line_on_a_terminal() -> None:
    text = shown(Terminal())
    assert "\n" not in text
    states = [state.strip() for state in text.split("\r\x1b[K")]
    assert states[:3] == ["", "fetching numpy (0 min 00 s)", "compiling: 1 of 40 (0 min 00 s)"]
    assert states[-2:] == ["installing (0 min 00 s)", ""]
    assert sum("compiling" in state for state in states) == 40


@pytest.fixture
def pip(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Starts the tool with a pip that runs the code given."""

    def start(code: str) -> subprocess.Popen[str]:
        (tmp_path / "pip.py").write_text(code)
        return subprocess.Popen(
            [sys.executable, pip_progress.__file__, "."],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def test_progress_of_what_succeeds(pip: Callable[[str], subprocess.Popen[str]]) -> None:
    process = pip("import sys; print(sys.argv[1:]); print('  [1/2] c++'); print('  [2/2] c++')")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert re.fullmatch(r"(  compiling: [12] of 2 \(0 min \d\d s\)\n){2}", out)


def test_progress_of_what_fails(pip: Callable[[str], subprocess.Popen[str]]) -> None:
    process = pip(
        "import sys\n"
        "print(*sys.argv[1:])\nprint('  [1/2] c++ -c a.cpp')\nsys.stdout.flush()\n"
        "print('error: no such file', file=sys.stderr)\nsys.exit(3)"
    )
    out, err = process.communicate()
    assert process.returncode == 3
    assert out.startswith("  compiling: 1 of 2 ")
    assert err == (
        "install -v --disable-pip-version-check .\n  [1/2] c++ -c a.cpp\nerror: no such file\n"
    )


@pytest.mark.parametrize("to_all", [True, False])
def test_progress_can_be_interrupted(
    pip: Callable[[str], subprocess.Popen[str]], *, to_all: bool
) -> None:
    process = pip("import time; print('[1/9] c++', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("  compiling: 1 of 9")
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "interrupted\n")
    with pytest.raises(ProcessLookupError):  # nothing goes on
        os.killpg(process.pid, 0)
