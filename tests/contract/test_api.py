"""The public interface: names, documentation, cost of imports, stubs."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import ROOT

import spillway
from spillway import _core
from spillway.config import classes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

EXTRAS = {"pandas", "pyarrow", "matplotlib", "scipy", "optuna", "distributed", "tqdm", "IPython"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the same spillway as this process."""
    path = str(Path(spillway.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


# --- names ----------------------------------------------------------------------------------------


def test_few_public_names() -> None:
    assert len(spillway.__all__) <= 39
    assert len(set(spillway.__all__)) == len(spillway.__all__)
    assert list(spillway.__all__) == sorted(spillway.__all__)
    assert set(dir(spillway)) == {*spillway.__all__, "__version__"}
    for name in spillway.__all__:
        assert not name.startswith("_")
        assert getattr(spillway, name) is not None


@pytest.mark.parametrize("name", [name for name in classes.CORE_MODULES if name != "cluster"])
def test_module_of_nouns_offers_its_classes(name: str) -> None:
    module = getattr(spillway, name)
    core = getattr(_core, name)
    assert inspect.ismodule(module)
    assert name in spillway.__all__
    offered = [cls.__name__ for cls in classes.config_classes(core)]
    assert module.__all__ == (["Server", *offered] if name == "instance" else offered)
    assert all(getattr(module, name) is getattr(core, name) for name in offered)


def test_version_is_that_of_the_project() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert spillway.__version__ == spillway.build_info["version"] == declared[1]


def test_errors_are_what_python_expects() -> None:
    assert issubclass(spillway.ConfigError, ValueError)
    assert issubclass(spillway.TraceError, ValueError)
    assert issubclass(spillway.UsageError, RuntimeError)
    assert issubclass(spillway.InvariantError, RuntimeError)
    assert issubclass(spillway.LivelockError, RuntimeError)


# --- documentation --------------------------------------------------------------------------------


def modules() -> Iterator[ModuleType]:
    yield spillway
    for found in pkgutil.walk_packages(spillway.__path__, "spillway."):
        if not found.name.rsplit(".", 1)[-1].startswith("_"):
            yield importlib.import_module(found.name)


MODULES = {module.__name__: module for module in modules()}


def public(holder: Any) -> Iterator[tuple[str, Any]]:
    for name, member in vars(holder).items():
        if name.startswith("_"):
            continue
        yield name, inspect.unwrap(getattr(member, "__func__", member))


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_everything_public_is_documented(module: ModuleType) -> None:
    assert module.__doc__
    undocumented = []
    for name, member in public(module):
        is_own = getattr(member, "__module__", None) == module.__name__
        if not is_own or not (inspect.isclass(member) or inspect.isroutine(member)):
            continue
        if not member.__doc__:
            undocumented.append(name)
        if inspect.isclass(member) and not hasattr(member, "_describe"):
            undocumented += [
                f"{name}.{attribute}"
                for attribute, method in public(member)
                if isinstance(method, property) or inspect.isroutine(method)
                if not method.__doc__
            ]
    assert undocumented == []


def test_the_walk_sees_the_modules() -> None:
    assert {
        "spillway.cli",
        "spillway.config.files",
        "spillway.result",
        "spillway.report.tables",
    } <= set(MODULES)


# --- arguments ------------------------------------------------------------------------------------

SIMULATION = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 2})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spillway.simulate(5), "simulation must be a Simulation, or the path of a conf"),
        (lambda: spillway.simulate(SIMULATION, "a"), "seed must be a whole number, not 'a'"),
        (lambda: spillway.simulate(SIMULATION, reference="a"), "reference must be True or False"),
        (lambda: spillway.simulate(SIMULATION, seeds=5.5), "seeds must be their number or several"),
        (lambda: spillway.simulate(SIMULATION, seeds=["a"]), "seed must be a whole number, not"),
        (lambda: spillway.simulate(SIMULATION, sed=5), "unexpected keyword argument 'sed'"),
        (
            lambda: spillway.simulate(SIMULATION, seeds=[1], threads="a"),
            "threads must be a whole number, not 'a'",
        ),
        (lambda: spillway.run_many(SIMULATION), "simulations must be several simulations, e.g. a"),
        (lambda: spillway.run_many("a.yaml"), "simulations must be several simulations, e.g. a"),
        (lambda: spillway.run_many([5]), "simulation must be a Simulation, or the path"),
        (
            lambda: spillway.run_many([SIMULATION], keep_requests="a"),
            "keep_requests must be True or False, not 'a'",
        ),
        (
            lambda: spillway.run_many([SIMULATION], progress=5),
            r"progress must be True or a function of \(done, total\), not 5",
        ),
        (lambda: spillway.Study(5, {"horizon_s": [1, 2]}, "goodput"), "simulation must be a"),
        (lambda: spillway.Space(5), "dimensions must be a mapping of dotted paths"),
        (lambda: spillway.Space({"horizon_s": "auto"}).bind(5), "simulation must be a Simulation"),
        (lambda: spillway.study.grid(5, {"horizon_s": [1, 2]}), "simulation must be a Simulation"),
        (lambda: spillway.fingerprint(5), "simulation must be a Simulation, not 5"),
        (lambda: spillway.dump(5, "a.yaml"), "simulation must be a Simulation, not 5"),
        (lambda: spillway.profiles.name_of(5), "simulation must be a Simulation, not 5"),
        (lambda: spillway.profiles.vllm(5), "simulation must be a Simulation, not 5"),
        (lambda: spillway.presets.get("baseline").apply(5), "simulation must be a Simulation"),
        (
            lambda: spillway.systems.vllm_on_eks.presets.pre().apply(5),
            "simulation must be a Simulation",
        ),
        (
            lambda: spillway.systems.dynamo.presets.v1_2().apply(5),
            "simulation must be a Simulation",
        ),
        (lambda: spillway.load(5), "expected str, bytes or os.PathLike object, not int"),
        (lambda: spillway.read_trace(5), "expected str, bytes or os.PathLike object, not int"),
        (lambda: spillway.read_recordings(5), "expected str, bytes or os.PathLike object, not int"),
        (lambda: spillway.trace(5), "takes 0 positional arguments but 1 was given"),
        (
            lambda: spillway.simulate(SIMULATION, seeds=[1, 2]).minus(5),
            "other must be Results, not 5",
        ),
    ],
)
def test_wrong_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


CONFIG_CLASSES = [
    cls for name in classes.CORE_MODULES for cls in classes.config_classes(getattr(_core, name))
]


@pytest.mark.parametrize("cls", CONFIG_CLASSES, ids=lambda cls: cls.__name__)
def test_wrong_arguments_of_settings_are_sentences(cls: type[Any]) -> None:
    one = cls()
    calls = [
        lambda: cls(5),
        lambda: one.replace(5),
        lambda: one.with_(5),
        one.with_,
        lambda: one.with_(count=4),
        lambda: one.to_dict(5),
        cls.from_dict,
        lambda: cls.from_dict(5, 6),
    ]
    if hasattr(cls, "preset"):
        calls += [lambda: cls.preset(5), cls.preset, lambda: cls.presets(5)]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert "incompatible" not in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(spillway.ConfigError, match=r"^settings = 5: must be a mapping of settings"):
        cls.from_dict(5)
    fields = [field["name"] for field in cls._describe()["fields"]]
    with pytest.raises(
        TypeError, match=f"by name: {cls.__name__}\\({fields[0]}=…" if fields else "none"
    ):
        cls(5)
    assert str(inspect.signature(cls.replace)).startswith("(self")


def test_a_file_can_be_run(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    spillway.dump(SIMULATION, path)
    digest = spillway.simulate(SIMULATION).digest
    assert spillway.simulate(path).digest == spillway.simulate(str(path)).digest == digest
    assert spillway.simulate(path, seeds=[0, 1])[0].digest == digest
    ((one,), (two,)) = spillway.run_many([path, SIMULATION], keep_requests=True)
    assert one.digest == two.digest == digest
    sweep = spillway.study.grid(
        path, {"horizon_s": [1, 2]}, seeds=1, metrics=["request_throughput"]
    )
    assert len(sweep.rows) == 2


# --- imports --------------------------------------------------------------------------------------


def imported_by(code: str) -> set[str]:
    """The modules imported after `code` has run in a separate Python process."""
    ended = run("-c", f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))")
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import spillway",
        "import spillway.cli",
        "from spillway import cli\ntry:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass",
    ],
)
def test_import_is_light(code: str) -> None:
    imported = imported_by(code)
    assert "spillway" in imported
    assert not imported & {*EXTRAS, "numpy", "yaml", "csv", "urllib.request", "multiprocessing"}
    assert not imported & {
        "spillway.study",
        "spillway.report",
        "spillway.files.traces.reading",
        "spillway.files.traces.table",
        "spillway.systems.blis.runs",
        "spillway.files.recordings",
        "spillway.config.files",
        "spillway.result",
    }


def test_classes_of_settings_are_made_when_they_are_used() -> None:
    imported_by("""
import spillway
made = lambda: {made.__name__ for made in spillway.config.classes._classes.values()}
assert made() == {"Simulation"}
spillway.Simulation().gateway.admission
assert made() == {"Simulation", "Gateway", "AlwaysAdmit"}
""")


@pytest.mark.parametrize(
    "code",
    [
        # A debugger shows an object whose __init__ failed.
        """
import traceback
try:
    gateway.TokenBucket(nope=1)
except spillway.ConfigError as error:
    text = traceback.TracebackException.from_exception(error, capture_locals=True).format()
    assert "settings without values" in "".join(text)
""",
        """
class Early(gateway.TokenBucket):
    def __init__(self):
        for use in (lambda: self.capacity_tokens, self.to_dict, lambda: hash(self)):
            try:
                use()
            except spillway.UsageError as error:
                assert "__init__ has not run" in str(error)
            else:
                raise AssertionError
        assert self != gateway.TokenBucket()
        super().__init__()
assert Early() == gateway.TokenBucket()
""",
        "assert typing.get_type_hints(gateway.TokenBucket)['capacity_tokens'] is float",
        "assert inspect.get_annotations(gateway.Band)['priority'] == 'int'",
        """
calls = []
class Counted(gateway.Band):
    def replace(self, **settings):
        calls.append(settings)
        return super().replace(**settings)
Counted().replace(priority=2)
assert calls == [{"priority": 2}]
""",
        "gateway.Band; assert 'Band' in vars(gateway) and 'Band' in dir(gateway)",
    ],
)
def test_classes_of_settings_are_ordinary_classes(code: str) -> None:
    """Each in a separate process, because objects created on first use persist."""
    imported_by(f"import inspect, typing\nimport spillway\nfrom spillway import gateway\n{code}")


def test_run_leaves_what_it_does_not_need(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    spillway.dump(SIMULATION, path)
    imported = imported_by(f"from spillway import cli\ncli.main(['run', {str(path)!r}])")
    assert {"numpy", "yaml", "spillway.result", "spillway.report.tables"} <= imported
    assert not imported & EXTRAS
    assert not imported & {
        "spillway.presets",
        "spillway.study",
        "spillway.report.plots",
        "spillway.files.traces.reading",
    }


@pytest.mark.parametrize(
    "before", ["", "import spillway.simulate", "import spillway.study", "import spillway.result"]
)
def test_every_public_name_is_there_in_any_order(before: str) -> None:
    code = f"""{before}
import pickle, types
import spillway
assert callable(spillway.simulate)
assert spillway.loading.load is spillway.load
for name in spillway.__all__:
    value = getattr(spillway, name)
    if not isinstance(value, types.ModuleType):
        assert pickle.loads(pickle.dumps(value)) is value or name == "build_info"
from spillway import *
assert Study is spillway.study.Study
"""
    assert "spillway.study" in imported_by(code)


@pytest.mark.parametrize("name", ["simulat", "_files", "numpy", "__wrapped__"])
def test_a_name_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'spillway' has no attribute '{name}'$"):
        getattr(spillway, name)


@pytest.mark.parametrize(("extra", "module"), [("frames", "pandas"), ("plot", "matplotlib")])
def test_missing_extra_is_named(extra: str, module: str) -> None:
    uses = {"pandas": "result.requests.to_frame()", "matplotlib": "result.plot.latency_cdf()"}
    ended = run(
        "-c",
        f"import sys; sys.modules[{module!r}] = None\n"
        "import spillway\n"
        "result = spillway.simulate(spillway.Simulation())\n"
        "try:\n"
        f"    {uses[module]}\n"
        "except ImportError as error:\n"
        "    print(error)\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert f"spillway-sim[{extra}]" in ended.stdout


# --- stubs ----------------------------------------------------------------------------------------


def test_committed_stubs_are_those_of_the_core() -> None:
    ended = run(str(ROOT / "tools" / "generate_stubs.py"), "--check")
    assert ended.returncode == 0, ended.stderr
    assert (ROOT / "python" / "spillway" / "py.typed").is_file()


# --- the repository -------------------------------------------------------------------------------

# Paths that exist on one machine only.
LOCAL = re.compile(r"(?<![\w.}])/(?:work|root|tmp/bash_jobs[.\d]*)(?![\w.-])|\.librar[y]\b")


def ignored_folders() -> set[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return {".git"} | {line.strip("/") for line in lines if line.endswith("/")}


def repository_files() -> Iterator[Path]:
    skip = ignored_folders()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skip]
        yield from (Path(folder, name) for name in names)


def test_no_local_paths() -> None:
    found = []
    seen = 0
    for path in repository_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        seen += 1
        for number, line in enumerate(text.splitlines(), start=1):
            if LOCAL.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert seen > 100
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_local"),
    [
        ("see |work|main|README.md", True),
        ('Path("|root")', True),
        ("a .librar" + "y folder", True),
        ("cpp|workload|requests.h", False),
        ("https:||example.org|work|index.html", False),
        ("|workload", False),
    ],
)
def test_what_a_local_path_is(text: str, is_local: bool) -> None:
    assert bool(LOCAL.search(text.replace("|", "/"))) is is_local
