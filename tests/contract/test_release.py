"""What `make release-check` finds in the files of the repository."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.paths import ROOT, importing_from

import spillway

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

with importing_from(ROOT / "tools"):
    import release

VERSION = spillway.__version__


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., list[str]]:
    """What is missing in a copy that is ready for its release, but for an edit of one file."""

    def missing(name: str = "", before: str = "", after: str = "") -> list[str]:
        ready = {
            "pyproject.toml": ("\n[tool.mypy]", '\n[project.urls]\nSource = "x"\n\n[tool.mypy]'),
            "CHANGELOG.md": (f"[{VERSION}] - unreleased", f"[{VERSION}] - 2030-01-31"),
            "CITATION.cff": ("\nlicense:", '\ndate-released: "2030-01-31"\nlicense:'),
        }
        for file in release.VERSIONS:
            text = (ROOT / file).read_text(encoding="utf-8").replace(*ready.get(file, ("", "")))
            if file == name:
                assert before in text
                text = text.replace(before, after, 1)
            path = tmp_path / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return [check.missing for check in release.facts(tmp_path) if check.missing]

    return missing


def test_the_versions_agree() -> None:
    (versions,) = (check for check in release.facts(ROOT) if "version everywhere" in check.name)
    assert versions.missing == ""


def test_a_release_that_is_ready_lacks_nothing(edited: Callable[..., list[str]]) -> None:
    assert edited() == []


@pytest.mark.parametrize("name", release.VERSIONS)
def test_another_version_is_found(name: str, edited: Callable[..., list[str]]) -> None:
    assert any(f"{name}: 9.9.9" in text for text in edited(name, VERSION, "9.9.9"))


def test_a_missing_date_and_address_are_found(edited: Callable[..., list[str]]) -> None:
    assert edited("CHANGELOG.md", "2030-01-31", "unreleased")[0] == (
        f"CHANGELOG.md: no date of {VERSION}"
    )
    assert edited("CITATION.cff", "2030-01-31", "2030-02-01") == [
        "CITATION.cff: `date-released` is not the date of the changelog"
    ]
    (address,) = edited("pyproject.toml", "[project.urls]", "[project.scripts2]")
    assert address.startswith("pyproject.toml: no [project.urls]")


def test_a_tag_is_that_of_the_version(tmp_path: Path) -> None:
    sdist = tmp_path / "spillway_sim-1.2.3.tar.gz"
    assert release.tag("v1.2.3", sdist).missing == ""
    assert release.tag("1.2.3", sdist).missing
    assert release.tag("v1.2.4", sdist).missing


def test_a_command_that_fails_shows_its_end() -> None:
    python = shutil.which("python3") or "python3"
    assert release.run("fails", python, "-c", "print('why'); exit(3)") == ("fails", "why")
    assert release.run("succeeds", python, "-c", "print('why')") == ("succeeds", "")
