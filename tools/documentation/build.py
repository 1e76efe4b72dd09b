"""Builds the documentation site, in `build/docs/html`: `make docs`.

    python tools/documentation/build.py [--links]

Every warning of Sphinx is an error; so are links and anchors within the site that lead nowhere,
pictures that are missing, and pages that load anything from elsewhere. `--links` checks the
addresses outside of the site instead, which needs the network.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "docs"
if str(ROOT / "tools") not in sys.path:
    sys.path.insert(0, str(ROOT / "tools"))

from documentation import reference  # noqa: E402
from documentation.site import Sources  # noqa: E402
from spillway.files.deployments import carriers  # noqa: E402

_PICTURE = re.compile(r"<(?:img|source)[^>]*\s(?:src|srcset)=\"(?!data:|https?:)([^\"?#]+)")
_LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*stylesheet[^>]*\"(?:https?:)?//"
)


def prepare() -> Path:
    """Writes the sources of the site; returns their folder."""
    source = FOLDER / "source"
    sources = Sources(ROOT, reference.pages(carriers=carriers))
    here = Path(__file__).parent
    sources.files["conf.py"] = (here / "conf.py").read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "_static").iterdir()):
        sources.files[f"_static/{path.name}"] = path.read_bytes()
    sources.write(source)
    return source


def foreign(folder: Path) -> list[str]:
    """Pages that load something from outside of the site."""
    pages = sorted(folder.rglob("*.html"))
    return [
        str(path.relative_to(folder)) for path in pages if _LOADED.search(path.read_text("utf-8"))
    ]


def without_picture(folder: Path) -> list[str]:
    """Pages that show a picture which is not part of the site."""
    return [
        f"{path.relative_to(folder)}: {picture}"
        for path in sorted(folder.rglob("*.html"))
        for picture in _PICTURE.findall(path.read_text("utf-8"))
        if not (path.parent / picture).exists()
    ]


def main() -> int:
    """Command line; the exit status of Sphinx, or 1 for pages that are not complete."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--links", action="store_true", help="check addresses outside of the site")
    options = parser.parse_args()
    start_s = time.monotonic()
    source = prepare()
    print(f"sources: {time.monotonic() - start_s:.0f} s", flush=True)
    builder = "linkcheck" if options.links else "html"
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        builder,
        "-j",
        "auto",
        "-q",
        "-W",
        "--keep-going",
    ]
    command += ["-d", FOLDER / "doctrees", source, FOLDER / builder]
    status = subprocess.run(command, check=False).returncode
    if status == 0 and builder == "html" and (found := foreign(FOLDER / "html")):
        print("These pages load something from elsewhere:", *found, sep="\n  ")
        status = 1
    if status == 0 and builder == "html" and (found := without_picture(FOLDER / "html")):
        print("These pages lack a picture:", *found, sep="\n  ")
        status = 1
    print(f"{'built' if status == 0 else 'FAILED'} after {time.monotonic() - start_s:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
