"""Policies: their names, their files, their specimens, their reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.descriptions import VARIANTS
from support.paths import ROOT, TESTS
from support.settings import CLASSES, KINDED, MODULE_OF, fields_of
from support.specimens import files, specimens

from spillway import Simulation, gateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


DECLARED = re.compile(r"^struct (\w+) (?:: [\w:<>]+ )?{", re.MULTILINE)
CPP = ROOT / "cpp"


HEADERS = {
    (header.relative_to(CPP).parts[0], name): header
    for header in CPP.rglob("*.h")
    for name in DECLARED.findall(header.read_text())
}


def header_of(cls: type[Any]) -> Path:
    return HEADERS[MODULE_OF[cls.__name__], cls.__name__]


@pytest.mark.parametrize("cls", KINDED, ids=lambda cls: cls.__name__)
def test_kind_is_the_name_of_its_header(cls: type[Any]) -> None:
    """Or the class, if the kind alone is too general; kinds of a few lines share a file.

    So do the policies written in Python, of which a stage may have a single one.
    """
    header = header_of(cls)
    if header.stem == "python_policies":
        assert cls.kind == "python"
    elif [path for path in KINDED if header_of(path) == header] == [cls]:
        assert cls.kind.replace("_", "") in cls.__name__.lower()
        assert header.stem in (cls.kind, re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower())


def alternatives(path: str) -> list[dict[str, Any]]:
    """The alternatives at a path of settings, which may lead through a kind."""
    place = Simulation._describe()
    for step in path.split("."):
        if "alternatives" in place:
            place = next(
                alternative for alternative in place["alternatives"] if alternative["kind"] == step
            )
            continue
        field = next(field for field in place["fields"] if field["name"] == step)
        place = field.get("of") or field
    return list(place["alternatives"])


POLICIES = {way.policy for way in VARIANTS.values()}


def place_of(header: Path) -> str:
    """Where the specimen of a policy belongs: in the file of its kind, or in a file of its own."""
    shared = {
        f"tests/{path}"
        for path, held in files().items()
        if Path(path).name.startswith("specimens_of_")
        and header.parent in {header_of(specimen.policy).parent for specimen in held}
    }
    folders = (folder for folder in header.relative_to(CPP).parents if (TESTS / folder).is_dir())
    return " or ".join(sorted(shared)) or f"tests/{next(folders)}/specimen_{header.stem}.py"


def test_every_policy_has_a_specimen() -> None:
    places = {name: place_of(header_of(CLASSES[name])) for name in POLICIES - {*specimens()}}
    assert places == {}, "policies without a specimen, and the file to write"


def test_place_of_a_specimen() -> None:
    assert place_of(CPP / "router/scorers/new.h") == "tests/router/specimens_of_scorers.py"
    own = place_of(CPP / "gateway/admission/new.h")
    assert own == "tests/gateway/admission/specimen_new.py"


def test_every_specimen_lies_beside_the_tests_of_its_policy() -> None:
    held = [(path, entry.policy) for path, ones in files().items() for entry in ones]
    assert len(held) == len(specimens()), "two specimens of a policy"
    assert {path for path, _ in held} == set(files()), "a file without a specimen"
    for path, policy in held:
        assert policy.__name__ in POLICIES, f"{path}: {policy.__name__} is not in the tree"
        assert CPP / Path(path).parent in header_of(policy).parents, f"{path}: elsewhere"


# Seam → the README, and the heading above the table there (empty: the first table).
TABLES = {
    "gateway.admission": ("gateway/admission", ""),
    "gateway.bands.fairness": ("gateway/fairness", ""),
    "gateway.limit": ("gateway/limit", ""),
    "gateway.usage_limit": ("gateway/usage_limit", ""),
    "gateway.controller": ("gateway/controller", ""),
    "router": ("router", "## Routers"),
    "router.weighted.filters": ("router", "## Filters"),
    "router.weighted.scorers": ("router", "## Scorers"),
    "router.weighted.picker": ("router", "## Pickers"),
    "disaggregation.decider": ("router", "## Deciders"),
}


@pytest.mark.parametrize("path", TABLES)
def test_table_has_a_row_for_every_policy(path: str) -> None:
    folder, heading = TABLES[path]
    text = (ROOT / "cpp" / folder / "README.md").read_text(encoding="utf-8")
    _, found, below = text.partition(f"{heading}\n")
    assert found
    table = below[below.index("| kind |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(alternative["kind"] for alternative in alternatives(path))


def test_every_policy_occurs_in_the_tree() -> None:
    def kinds(description: Mapping[str, Any]) -> Iterator[str]:
        for field in description["fields"]:
            below = [field["of"]] if "of" in field else field.get("alternatives", [])
            for place in below:
                yield place["name"]
                yield from kinds(place)

    assert set(kinds(Simulation._describe())) | {"Simulation"} == set(CLASSES)


def test_admission_policies_and_their_reasons() -> None:
    policies = fields_of(gateway.Gateway)["admission"]["alternatives"]
    reasons = [reason for policy in policies for reason in policy.get("reasons", ())]
    names = [reason["name"] for reason in reasons]
    assert len(set(names)) == len(names)
    assert all(reason["doc"] for reason in reasons)
    for policy in policies:
        assert bool(policy.get("reasons")) == (policy["kind"] != "always_admit")
        for reason in policy.get("reasons", ()):
            assert reason["name"] in CLASSES[policy["name"]].__doc__
