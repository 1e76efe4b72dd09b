"""Tables of the flags of vLLM, SGLang, its router and Dynamo, by version, from their wheels.

    python tools/generate_flag_tables.py --wheels DIR [SYSTEM …]

DIR keeps the wheels, which pip downloads without their dependencies (of vLLM half a gigabyte each).
Only the definitions of arguments are read, without importing anything: calls of `add_argument`, and
fields of classes from which a parser makes arguments. A table has a line per flag and range of
versions: how it takes values, its other spellings, and the variable that has the same effect.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

SYSTEMS = Path(__file__).parents[1] / "python" / "spillway" / "systems"
COLUMNS = ("program", "flag", "kind", "others", "variable", "first", "last")


@dataclass
class Flag:
    """A flag: how it takes values (switch, pair, value, values, optional), names, variable."""

    name: str
    kind: str
    others: tuple[str, ...] = ()
    variable: str = ""


@dataclass
class System:
    """The versions of a system, and which files of its wheel define the flags of a program."""

    distribution: str
    folder: str
    versions: dict[str, str]
    programs: dict[str, str]
    fields: tuple[str, ...] = ()
    short: dict[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = field(default=())


_GROUPS = r"dynamo/common/configuration/groups"
_ROUTER = rf"{_GROUPS}/(?:kv_router|a\w+_perf)_args\.py"
_FRONTEND = rf"{_GROUPS}/router_args\.py"
_WORKER = rf"{_GROUPS}/(?:runtime|frontend_decoding)_args\.py"
TABLES = {
    "vllm": System(
        "vllm",
        "vllm",
        {
            "0.10": "0.10.2",
            "0.12": "0.12.0",
            "0.15": "0.15.1",
            "0.19": "0.19.1",
            "0.24": "0.24.0",
            "0.29": "0.29.0",
            "0.33": "0.33.0",
        },
        {
            "vllm": r"vllm/(?:engine/arg_utils|engine/async_llm_engine|entrypoints/cli/serve"
            r"|entrypoints/(?:openai|common|launchers)/cli_args)\.py"
        },
        fields=("FrontendArgs", "BaseFrontendArgs"),
        short={"--optimization-level": "-O"},  # which the parser itself replaces
    ),
    "sglang": System(
        "sglang",
        "sglang",
        {"0.4": "0.4.10", "0.5.6": "0.5.6", "0.5.23": "0.5.23"},
        {"sglang": r"sglang/srt/(?:server_args|arg_groups/fields/\w+)\.py"},
    ),
    "sglang_router": System(
        "sglang-router",
        "sglang_router",
        {"0.2": "0.2.4", "0.3": "0.3.2"},
        {"sglang_router": r"sglang_router/(?:router_args|launch_router)\.py"},
    ),
    "dynamo": System(
        "ai-dynamo",
        "dynamo",
        {"1.2": "1.2.1", "1.3": "1.3.1", "1.4": "1.4.2", "1.5": "1.5.1", "1.6": "1.6.1"},
        {
            "dynamo.frontend": rf"dynamo/frontend/frontend_args\.py|{_FRONTEND}|{_ROUTER}",
            "dynamo.router": rf"dynamo/router/args\.py|{_ROUTER}",
            "dynamo.vllm": rf"dynamo/vllm/(?:backend_)?args\.py|{_WORKER}",
            "dynamo.sglang": rf"dynamo/sglang/(?:backend_)?args\.py|{_WORKER}",
            "dynamo.trtllm": rf"dynamo/trtllm/(?:utils/)?(?:backend_|trtllm_)?args\.py|{_WORKER}",
        },
    ),
}

# Documented for a version, and not in its wheel.
DOCUMENTED = {
    "dynamo": [
        ["dynamo.frontend", "admission-control", "value", "", "DYN_ADMISSION_CONTROL", "1.2", "1.2"]
    ]
}


# --- definitions of arguments ---------------------------------------------------------------------


def flags_of(
    trees: list[ast.Module], classes: dict[str, ast.ClassDef], fields: tuple[str, ...]
) -> list[Flag]:
    """The flags that some files define."""
    found: list[Flag] = []
    for tree in trees:
        configs = _configs(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node).endswith(
                ("add_argument", "bool_argument")
            ):
                flag = _argument(node, configs, classes)
                found += [flag] if flag else []
            elif isinstance(node, ast.ClassDef):
                found += _annotated(node)
                if node.name in fields:
                    found += [
                        Flag(f"--{name.replace('_', '-')}", _kind(kind))
                        for name, kind in _annotations(node).items()
                    ]
    return found


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _configs(tree: ast.Module) -> dict[str, str]:
    """Variables that hold the keyword arguments of a class: `model_kwargs = get_kwargs(Model)`."""
    return {
        node.targets[0].id: node.value.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and _called(node.value) in ("get_kwargs", "_compute_kwargs")
        and node.value.args
        and isinstance(node.value.args[0], ast.Name)
    }


def _argument(
    node: ast.Call, configs: dict[str, str], classes: dict[str, ast.ClassDef]
) -> Flag | None:
    names = [name for arg in node.args if (name := _text(arg))]
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    for key in ("flag_name", "obsolete_flag"):
        value = keywords.get(key)
        if isinstance(value, ast.Constant) and value.value:
            names.append(value.value)
    names = [name for name in names if name.startswith("-")]
    if not names:
        return None
    kind = _kind_of_call(_called(node), keywords)
    for keyword in node.keywords:
        for source in ast.walk(keyword.value) if keyword.arg is None else ():
            if (
                isinstance(source, ast.Subscript)
                and isinstance(source.value, ast.Name)
                and isinstance(source.slice, ast.Constant)
            ):
                annotations = _all_annotations(configs.get(source.value.id, ""), classes)
                annotation = annotations.get(str(source.slice.value))
                kind = _kind(annotation) if annotation else kind
    variables = [
        text.value
        for text in ast.walk(keywords["env_var"])
        if isinstance(text, ast.Constant) and str(text.value).startswith("DYN")
    ] if "env_var" in keywords else []  # fmt: skip
    long = [name for name in names if name.startswith("--")] or names
    return Flag(
        long[0], kind, tuple(name for name in names if name != long[0]), "".join(variables[-1:])
    )


def _text(node: ast.expr) -> str:
    """A name; of f"--{prefix}name" without the prefix."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    return "".join(value for value in values if isinstance(value, str))


def _kind_of_call(called: str, keywords: dict[str, ast.expr]) -> str:
    action = ast.unparse(keywords["action"]).strip("'\"") if "action" in keywords else ""
    if "bool_argument" in called or "BooleanOptional" in action or "EnforceDisagg" in action:
        return "pair"
    if re.search(r"(?i)store_?(?:true|false)|^version$|^help$", action):
        return "switch"
    nargs = keywords.get("nargs")
    if isinstance(nargs, ast.Constant):
        return {"?": "optional", None: "value"}.get(nargs.value, "values")
    return "value"


def _annotations(node: ast.ClassDef) -> dict[str, str]:
    return {
        item.target.id: ast.unparse(item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _all_annotations(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, str]:
    """The fields of a class and of its bases."""
    if name not in classes:
        return {}
    found: dict[str, str] = {}
    for base in classes[name].bases:
        found |= _all_annotations(ast.unparse(base), classes)
    return found | _annotations(classes[name])


def _kind(annotation: str) -> str:
    """How a flag of a type takes values."""
    heads = {_head(option) for option in _options(ast.parse(annotation, mode="eval").body)}
    if "bool" in heads:
        return "optional" if "str" in heads else "pair"
    return "values" if heads & {"list", "List", "tuple", "set", "Sequence"} else "value"


def _options(node: ast.expr) -> list[ast.expr]:
    """The alternatives of a type."""
    if isinstance(node, ast.BinOp):
        return [*_options(node.left), *_options(node.right)]
    if isinstance(node, ast.Subscript) and _head(node) in ("Optional", "Union", "SkipValidation"):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [option for element in inner for option in _options(element)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _options(ast.parse(node.value, mode="eval").body)
    return [node]


def _head(node: ast.expr) -> str:
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).rpartition(".")[2]


def _annotated(node: ast.ClassDef) -> list[Flag]:
    """Fields that are annotated as arguments: `A[int, "help"]` and `A[int, Arg(…)]`."""
    found = []
    for item in node.body:
        annotation = item.annotation if isinstance(item, ast.AnnAssign) else None
        if not (
            isinstance(annotation, ast.Subscript)
            and ast.unparse(annotation.value) == "A"
            and isinstance(annotation.slice, ast.Tuple)
        ):
            continue
        kind, *meta = annotation.slice.elts
        given: dict[str, ast.expr] = {}
        for entry in meta:
            if isinstance(entry, ast.Call) and _called(entry) == "Arg":
                given = {keyword.arg: keyword.value for keyword in entry.keywords if keyword.arg}
        if "no_cli" in given and ast.unparse(given["no_cli"]) == "True":
            continue
        name = f"--{item.target.id.replace('_', '-')}"
        if isinstance(given.get("cli_name"), ast.Constant):
            name = given["cli_name"].value
        others = ast.literal_eval(given["aliases"]) if "aliases" in given else []
        text = ast.unparse(kind)
        form = _kind(text)
        form = "switch" if form == "pair" and not text.startswith("Optional") else form
        if "action" in given or "nargs" in given:
            form = _kind_of_call("", given)
        found.append(Flag(name, form, tuple(others)))
    return found


# --- wheels and tables ----------------------------------------------------------------------------


def wheel(distribution: str, version: str, folder: Path) -> Path:
    """The wheel of a version, which is downloaded if it is not in the folder."""
    pattern = f"{distribution.replace('-', '_')}-{version}-*.whl"
    if not any(folder.glob(pattern)):
        command = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        requirement = f"{distribution}=={version}"
        subprocess.run([sys.executable, "-m", *command, "-d", str(folder), requirement], check=True)
    return next(folder.glob(pattern))


def read(path: Path, system: System) -> dict[str, dict[str, Flag]]:
    """The flags of each program in a wheel, by name."""
    with zipfile.ZipFile(path) as archive:
        sources = {
            name: ast.parse(archive.read(name))
            for name in archive.namelist()
            if name.endswith(".py")
            and (
                re.fullmatch(r"vllm/config/\w+\.py", name)
                or any(re.fullmatch(pattern, name) for pattern in system.programs.values())
            )
        }
    classes = {
        node.name: node
        for tree in sources.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {}
    for program, pattern in system.programs.items():
        trees = [tree for name, tree in sources.items() if re.fullmatch(pattern, name)]
        flags: dict[str, Flag] = {}
        for flag in flags_of(trees, classes, system.fields):
            if flag.name in system.short:
                flag.others = (*flag.others, system.short[flag.name])
            flags.setdefault(flag.name, flag)
        found[program] = flags
    return found


def rows(system: System, folder: Path) -> list[list[str]]:
    """The table: each flag with the first and the last version that has it like this."""
    by_version = {
        version: read(wheel(system.distribution, full, folder), system)
        for version, full in system.versions.items()
    }
    versions = list(by_version)
    found = []
    for program in system.programs:
        names = sorted({name for flags in by_version.values() for name in flags[program]})
        for name in names:
            current: list[str] = []
            for version in versions:
                flag = by_version[version][program].get(name)
                facts = [flag.kind, " ".join(flag.others), flag.variable] if flag else []
                if current and facts == current[2:5]:
                    current[6] = version
                    continue
                current = [program, name.lstrip("-"), *facts, version, version] if flag else []
                found += [current] if flag else []
    for row in found:
        row[6] = "" if row[6] == versions[-1] else row[6]
    return found


def main() -> None:
    """Writes the tables of the given systems, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", default=list(TABLES))
    options = parser.parse_args()
    for name in options.systems:
        system = TABLES[name]
        table = [*rows(system, options.wheels), *DOCUMENTED.get(name, [])]
        path = SYSTEMS / system.folder / "flags.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(table)
        print(f"{path}: {len(table)} lines")


if __name__ == "__main__":
    main()
