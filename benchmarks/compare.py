"""A git revision against the working tree: `python benchmarks/compare.py main --scenario W8`.

Both packages are built under build/compare (or given by --base-path and --head-path), then the
scenarios run in turn, base, head, base, head, each in a fresh process. The scenarios are those of
the working tree; the base must be able to run them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench import child
from scenarios import SCENARIOS

_ROOT = Path(__file__).resolve().parent.parent
_BUILD = _ROOT / "build" / "compare"


def _build(source: Path, name: str) -> Path:
    """Builds the package of `source`; returns the folder to import it from."""
    target = _BUILD / name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-build-isolation", "--no-deps", "--upgrade", "--target", str(target)]
    pip += ["-C", f"build-dir={_BUILD / ('objects-' + name)}", str(source)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(pip, check=True, env={**os.environ, "PATH": path})
    return target


def _build_revision(revision: str) -> Path:
    tree = _BUILD / "tree"
    _BUILD.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(_ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
    try:
        return _build(tree, "base")
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", help="git revision of the base")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="default: W8, W8-*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="runs within one round")
    parser.add_argument("--base-path", type=Path, help="folder of a package already built")
    parser.add_argument("--head-path", type=Path, help="folder of a package already built")
    options = parser.parse_args()
    if (options.revision is None) == (options.base_path is None):
        parser.error("give either a revision or --base-path")
    base = options.base_path or _build_revision(options.revision)
    head = options.head_path or _build(_ROOT, "head")
    bench = Path(__file__).with_name("bench.py")
    print("requests/s of head over base: median (smallest to largest of the rounds)")
    for scenario in options.scenario or ["W8", "W8-full", "W8-long"]:
        run = ("--scenario", scenario, "--json", "--repeats", options.repeats)
        ratios = []
        digests = set()
        for _ in range(options.rounds):
            rows = [child(bench, *run, package=package.resolve()) for package in (base, head)]
            ratios.append(rows[1]["requests_per_s"] / rows[0]["requests_per_s"])
            digests |= {row["digest"] for row in rows}
        print(
            f"{scenario:<10}{statistics.median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}), "
            f"digests {'agree' if len(digests) == 1 else 'DIFFER'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
