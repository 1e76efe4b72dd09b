"""Configurations as files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples, trials
from support.paths import ROOT, TESTS
from support.random_simulations import random_simulation
from support.settings import ODD as RICH

import spillway
from spillway import (
    ConfigError,
    Result,
    Simulation,
    TraceError,
    dump,
    fingerprint,
    gateway,
    instance,
    load,
    profiles,
    read_trace,
    router,
    simulate,
    trace,
    workload,
)
from spillway.config import filesystem
from spillway.config import yaml as _yaml
from spillway.config.files import to_settings
from spillway.config.profiles import BLIS_SERVER
from spillway.files import export

if TYPE_CHECKING:
    from collections.abc import Callable


SMALLEST = TESTS / "golden" / "configs" / "smallest.yaml"
EXAMPLE = ROOT / "examples" / "noisy_neighbor.yaml"

TRACE_CSV = "arrival_s,input_tokens,output_tokens,tenant\n0,100,5,gold\n0.5,200,3,free\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file and returns its path."""

    def write_file(content: str | bytes, name: str = "config.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def message(path: Path) -> str:
    """What is wrong with a configuration file."""
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e6", 1e6), ("1E6", 1e6), ("1.5e+3", 1500), ("2e-3", 0.002), (".5e1", 5), ("7.e0", 7),
        ("12", 12), ("0.25", 0.25), ("+3", 3), ("1e06", 1e6), ("010", 10), ("0x10", 16),
        ("0o20", 16),
    ],
)  # fmt: skip
def test_numbers(write: Callable[..., Path], text: str, number: float) -> None:
    assert load(write(f"warm_up_s: {text}\n")).warm_up_s == number


@pytest.mark.parametrize(
    "text",
    [
        "e6", "1e", "1e6s", "ten", "'12'", "1 000", "0x", "1e6.5", "1:30", "1:30:00.5", "1_000",
        "0b11", "-0x10", "2024-01-01", "yes", "!!str 12",
    ],
)  # fmt: skip
def test_what_is_no_number(write: Callable[..., Path], text: str) -> None:
    assert message(write(f"warm_up_s: {text}\n")).endswith("must be a number")


def test_same_settings_as_yaml_and_json(write: Callable[..., Path]) -> None:
    written = {
        "schema": 1,
        "profile": "blis_0_6",
        "router": "least_loaded",
        "instances": {"count": 3},
    }
    expected = profiles.blis_0_6(
        Simulation(router="least_loaded", instances=BLIS_SERVER.replace(count=3))
    )
    assert load(write(json.dumps(written), "a.json")) == expected
    assert load(write(yaml.safe_dump(written), "a.yaml")) == expected
    assert load(write("\ufeff" + yaml.safe_dump(written), "bom.yaml")) == expected
    assert load(write(yaml.safe_dump(written).replace("\n", "\r\n"), "dos.yaml")) == expected
    for nothing in ("# nothing but a comment\n", ""):
        with pytest.warns(UserWarning, match=r"config.yaml: empty, so every setting has its"):
            assert load(write(nothing)) == Simulation()


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("", BLIS_SERVER),
        ("instances: {count: 3}", BLIS_SERVER.replace(count=3)),
        ("instances: [{count: 3}, {latency: roofline}]", None),
        ("instances: {latency: {beta0_us: 5}}", None),
        ("instances: {latency: {preset: llama-3.1-8b-h100-tp4}, num_kv_blocks: 9}", None),
        ("instances: {kv_cache: {prefix_caching: false}}", None),
    ],
)
def test_the_default_server_of_the_profile_of_blis(
    write: Callable[..., Path], written: str, group: Any
) -> None:
    found = load(write(f"profile: blis_0_6\n{written}\n"))
    if group is not None:
        assert found == profiles.blis_0_6(Simulation(instances=group))
    for server in found.instances:
        assert (server.max_num_seqs, server.max_num_batched_tokens, server.max_model_len) == (
            256,
            2048,
            0,
        )
        assert (server.async_scheduling, server.kv_cache.reserve_full_prompt) == (False, False)


@pytest.mark.parametrize("schema", ["", "schema: 1"])
def test_the_default_server_is_that_of_the_classes(write: Callable[..., Path], schema: str) -> None:
    found = load(write(f"{schema}\ninstances: {{count: 3}}\n"))
    assert found == Simulation(instances=instance.InstanceGroup(count=3))


def test_file_without_a_schema_is_read_in_silence(write: Callable[..., Path]) -> None:
    for name in ("a.yaml", "a.json"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = load(write('{"router": "least_loaded"}', name))
        assert found == Simulation(router="least_loaded")


def test_json_may_be_indented_with_tabs(write: Callable[..., Path]) -> None:
    written = {"router": "least_loaded", "instances": {"count": 3}}
    assert load(write(json.dumps(written, indent="\t"), "a.json")) == Simulation(**written)


@pytest.mark.parametrize("name", ["größe", "租户", "🚀"])
def test_unicode_names(write: Callable[..., Path], name: str) -> None:
    expected = Simulation(slo_classes=[{"name": "standard"}, {"name": name}])
    written = f"slo_classes: [{{name: standard}}, {{name: {name}}}]"
    assert load(write(written)) == expected
    escaped = json.dumps({"slo_classes": [{"name": "standard"}, {"name": name}]})
    assert load(write(escaped, "a.json")) == expected
    for path in (write(""), write("", "b.json")):
        dump(expected, path)
        assert load(path) == expected


NEITHER = "{path} line %d: not valid YAML or JSON: "
NO_MAPPING = "{path}: must be a mapping of settings such as `router: round_robin`"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: b: c\n", NEITHER % 1 + "mapping values are not allowed here"),
        ("router: round_robin\ninstances: [\n", NEITHER % 3),
        ('{"router": "round_robin",\n "warm_up_s" 3}\n', NEITHER % 2),
        ("\twarm_up_s: 1\n", NEITHER % 1),
        ("warm_up_s: 1\n\nwarm_up_s: 2\n", NEITHER % 3 + "the key 'warm_up_s' is given twice"),
        ("gateway: {limit: fixed, limit: unlimited}", "the key 'limit' is given twice"),
        ('{"a": 1, "a": 1}', "the key 'a' is given twice"),
        ("a: 1\n---\nb: 2\n", NEITHER % 2),
        ("a: !!python/object:os.system x\n", NEITHER % 1),
        ("a: !!timestamp x\n", NEITHER % 1),
        ("a: !!binary x\n", NEITHER % 1),
        ("a: !!int 1:30\n", NEITHER % 1 + "'1:30' is not a valid int"),
        ("a: !!bool maybe\n", NEITHER % 1 + "'maybe' is not a valid bool"),
        ("a: *b\n", NEITHER % 1 + "the alias *b is not supported; repeat the value"),
        ("<<: &b {c: 1}\n", "unknown setting"),
        ("a: " + 5000 * "1", NEITHER % 1 + "a number of 5000 digits; must be <= 309"),
        (b"a: \x00\n", "{path}: not valid YAML or JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "{path}: not a text file; a configuration is YAML or JSON"),
        ("a: b".encode("utf-16"), "{path}: not a text file"),
        ("- router\n", NO_MAPPING + ", not ['router']"),
        ("round_robin\n", NO_MAPPING + ", not 'round_robin'"),
        ("arrival_s,input_tokens\n0,1\n", NO_MAPPING),
        ("3\n", NO_MAPPING + ", not 3"),
        ("schema: 2\n", "schema = 2: must be 1"),
        ("schema: '1'\n", "schema = '1': must be 1"),
        ("schema: true\n", "schema = True: must be 1"),
        ("profile: vlm\n", "profile = 'vlm': must be one of vllm, blis_0_6"),
        ("profile: [vllm]\n", "profile = ['vllm']: must be one of vllm, blis_0_6"),
        ("router: {kind: least_loaded, tie: first}", "unknown setting; did you mean 'ties'?"),
    ],
)
def test_bad_files(write: Callable[..., Path], content: str | bytes, expected: str) -> None:
    path = write(content)
    found = message(path)
    assert expected.format(path=path) in found
    assert "\n" not in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert message(missing) == f"{missing}: cannot be read: No such file or directory"
    assert message(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert message(pipe) == f"{pipe}: cannot be read: Not a regular file"
    assert message(Path("/dev/zero")) == "/dev/zero: cannot be read: Not a regular file"
    assert message(Path("a\0b")) == "'a\\x00b': cannot be read: not a valid file name"


@pytest.mark.parametrize("content", ['{"a": 1, "a": 1}', '{"a": ' + 5000 * "1" + "}"])
def test_json_that_no_setting_can_be_is_refused(write: Callable[..., Path], content: str) -> None:
    path = write(content, "a.json")
    assert message(path).startswith(f"{path}: not valid JSON: ")


@pytest.mark.parametrize("text", ['{"profile": "\\ud800"}', '{"tenants": [{"name": "\\ud800"}]}'])
def test_text_that_is_no_unicode_is_refused(write: Callable[..., Path], text: str) -> None:
    for name in ("a.json", "a.yaml"):
        assert message(write(text, name))


@pytest.mark.parametrize(
    "write_it",
    [
        lambda path: dump(Simulation(), path),
        lambda path: simulate(Simulation()).save(path),
        lambda path: simulate(Simulation()).write(path),
    ],
)
def test_places_that_cannot_be_written(tmp_path: Path, write_it: Callable[[Path], None]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file/below/result: cannot be written: Not a directory"):
        write_it(tmp_path / "file" / "below" / "result")


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "gateway: {{ limit }}\n",  # a template that is not filled in
        "? [a, b]\n: 1\n",
        "1: 2\n",
        "true: 2\n",
        "warm_up_s: 1" + 400 * "0" + "\n",
        "workload: " + 2000 * "[" + 2000 * "]" + "\n",
        "workload: " + 2000 * "{a: " + 2000 * "}" + "\n",
    ],
    ids=[
        "template",
        "list as key",
        "number as key",
        "truth as key",
        "huge",
        "deep list",
        "deep mapping",
    ],
)
def test_strange_yaml_is_a_config_error(write: Callable[..., Path], content: str) -> None:
    assert message(write(content))


@pytest.mark.parametrize("name", ["2024-01-01", "yes", "No", "1:30", "1_000", "0b1", "=", "<<"])
def test_what_only_old_yaml_takes_for_something_else_is_text(
    write: Callable[..., Path], name: str
) -> None:
    found = load(write(f"slo_classes: [{{name: standard}}, {{name: {name}}}]\n"))
    assert found.slo_classes[1].name == name


@pytest.mark.parametrize(
    "name", ["1e6", "0o17", "0x1F", "08", "1:30", "yes", "null", "~", "", ".nan", "1_000", "<<"]
)
def test_text_is_dumped_as_text(tmp_path: Path, name: str) -> None:
    classes = [{"name": "standard"}, {"name": f"{name}"}]
    expected = Simulation(slo_classes=classes)
    dump(expected, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml") == expected
    # YAML 1.1 reads the same.
    old = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert [slo_class["name"] for slo_class in old["slo_classes"]] == ["standard", name]


@pytest.mark.parametrize("outer", ["tenants", "unknown"])
def test_alias_bomb_is_refused(write: Callable[..., Path], outer: str) -> None:
    levels = ["a0: &a0 [x]"] + [
        f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]" for i in range(1, 10)
    ]
    found = message(write("\n".join([*levels, f"{outer}: *a9\n"])))
    assert "line 2: not valid YAML or JSON: the alias *a0 is not supported" in found


class CountedText(str):
    """Text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedText.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_work_to_find_a_key_given_twice_is_linear() -> None:
    pairs: list[tuple[str, Any]] = [(CountedText(f"key{i}"), 0) for i in range(20_000)]
    CountedText.compared = 0
    assert len(_yaml.unique_keys(pairs)) == 20_000
    assert CountedText.compared < 200_000


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_many_keys_and_tenants(write: Callable[..., Path], name: str) -> None:
    one = ", ".join(f'{{"name": "t{i}"}}' for i in range(3000))
    found = load(write(f'{{"tenants": [{{"name": "default"}}, {one}]}}', name))
    assert len(found.tenants) == 3001


@pytest.mark.slow
def test_too_many_tenants_are_refused() -> None:
    tenants = [{"name": f"t{i}"} for i in range(100_000)]
    with pytest.raises(ConfigError) as caught:
        Simulation(tenants=tenants)
    lines = str(caught.value).splitlines()
    assert "tenants = 100001 names: must be <= 65535" in lines
    assert max(map(len, lines)) < 2000  # not all of them are named
    clients = [workload.Client(name=f"c{i}", tenant=f"t{i}") for i in range(65_536)]
    with pytest.raises(ConfigError, match="tenants = 65536 names: must be <= 65535"):
        Simulation(workload=workload.Synthetic(clients=clients))
    found = Simulation(workload=workload.Synthetic(clients=clients[1:], num_requests=10))
    assert simulate(found).ledger["logical_requests"] == 10


@pytest.mark.parametrize("content", ["workload: &a [*a]\n", "workload: &a {kind: *a}\n"])
def test_yaml_that_contains_itself_is_refused(write: Callable[..., Path], content: str) -> None:
    assert "the alias *a is not supported" in message(write(content))


def test_smallest_file() -> None:
    found = load(SMALLEST)
    assert found == Simulation(
        workload=workload.Trace(),
        gateway=gateway.Gateway(
            admission=gateway.TokenBucket(capacity_tokens=10000, refill_tokens_per_s=1000)
        ),
        router=router.RoundRobin(),
        instances=[
            instance.InstanceGroup(
                count=4,
                max_num_seqs=256,
                max_num_batched_tokens=2048,
                block_size_tokens=16,
                num_kv_blocks=132139,
                latency=instance.Linear.preset("llama-3.1-8b-h100-tp2"),
            )
        ],
    )
    assert profiles.name_of(found) == "vllm"
    with pytest.raises(ConfigError, match="holds no requests; read some with --trace"):
        simulate(found)
    requests = trace(arrival_s=[0, 0], input_tokens=[9000, 1001], output_tokens=[1, 1])
    assert simulate(found.replace(workload=requests)).ledger["rejected"] == {
        "insufficient_tokens": 1
    }


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.yaml", "config.yml", "config.json", "config"])
@pytest.mark.parametrize("simulation", [Simulation(), RICH, profiles.blis_0_6(RICH), load(EXAMPLE)])
def test_dump_and_load(tmp_path: Path, simulation: Simulation, name: str) -> None:
    path = tmp_path / name
    dump(simulation, path)
    assert load(path) == simulation
    assert fingerprint(load(path)) == fingerprint(simulation)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    if name.endswith("json"):
        assert json.loads(path.read_text())["schema"] == 1
    else:
        assert path.read_text().startswith("schema: 1\n")


def without_defaults(settings: dict[str, Any], is_same: Callable[[], bool]) -> None:
    """Removes every setting but names without which `is_same` still holds, in place."""
    for name in [name for name in settings if name not in ("kind", "name")]:
        value = settings.pop(name)
        try:
            if is_same():
                continue
        except ConfigError:  # it is required
            pass
        settings[name] = value
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, dict):
                without_defaults(entry, is_same)


@pytest.mark.parametrize("seed", trials(60))
def test_a_brief_file_has_what_cannot_be_left_out(seed: int, tmp_path: Path) -> None:
    simulation = random_simulation(f"brief {seed}").simulation
    wanted, left = simulation.to_dict(), simulation.to_dict()
    without_defaults(left, lambda: bool(Simulation.from_dict(left).to_dict() == wanted))
    assert to_settings(simulation, tmp_path, brief=True) == {"schema": 1, **left}


def test_dump_overwrites_and_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("old: " + 10_000 * "x")
    dump(Simulation(), path)
    assert load(path) == Simulation()
    fresh = tmp_path / "fresh"
    fresh.touch()
    assert path.stat().st_mode == fresh.stat().st_mode


def test_failed_writing_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def fail() -> None:
        with filesystem.replacing(path) as temporary:
            temporary.write_text("half of the")
            assert path.read_text() == "before"
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with filesystem.replacing(path) as temporary:
        temporary.write_text("after")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_results_leave_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = simulate(Simulation())

    def half(_: Result, path: Path) -> None:
        path.write_text("request_id,ten")
        raise OSError("no space left on device")

    monkeypatch.setattr(export, "_write_requests", half)
    with pytest.raises(ConfigError, match="no space"):
        result.write(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("blocked", ["summary.json", "requests.csv"])
def test_results_are_written_as_a_whole(tmp_path: Path, blocked: str, before: bool) -> None:
    first, second = (
        simulate(Simulation(workload={"kind": "synthetic", "num_requests": n})) for n in (3, 5)
    )
    if before:
        first.write(tmp_path)
        (tmp_path / blocked).unlink()
    (tmp_path / blocked).mkdir()
    found = contents(tmp_path)
    assert len(found) == before
    with pytest.raises(ConfigError, match=f"{blocked}: cannot be written: Is a directory"):
        second.write(tmp_path)
    assert contents(tmp_path) == found
    (tmp_path / blocked).rmdir()
    second.write(tmp_path)
    assert sorted(contents(tmp_path)) == ["requests.csv", "summary.json"]
    assert contents(tmp_path)["requests.csv"].count("\n") == 6


def test_result_that_cannot_be_summarized_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = simulate(Simulation())
    result.write(tmp_path)
    found = contents(tmp_path)

    def fail(_: Simulation) -> str:
        raise ConfigError("no name")

    monkeypatch.setattr(profiles, "name_of", fail)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(ConfigError, match="no name"):
            result.write(folder)
    assert contents(tmp_path) == found
    assert not (tmp_path / "new").exists()


def test_requests_of_an_earlier_run_do_not_stay(tmp_path: Path) -> None:
    simulate(Simulation()).write(tmp_path)
    streamed = simulate(Simulation(metrics={"streaming": True}))
    streamed.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


# --- traces by reference --------------------------------------------------------------------------


def test_trace_is_relative_to_the_file(write: Callable[..., Path], tmp_path: Path) -> None:
    write(TRACE_CSV, "data/requests.csv")
    beside = load(write("workload: {kind: trace, file: requests.csv}\n", "data/config.yaml"))
    above = load(
        write("workload: {kind: trace, file: ../data/requests.csv}\n", "other/config.yaml")
    )
    absolute = load(write(f"workload: {{kind: trace, file: {tmp_path}/data/requests.csv}}\n"))
    for found in (beside, above, absolute):
        assert found.workload.has_requests
        assert found.workload.rows == 2
        assert simulate(found).ledger["completed"] == 2
    assert beside.workload.sha256 == above.workload.sha256 == absolute.workload.sha256


def test_digest_is_checked(write: Callable[..., Path]) -> None:
    digest = read_trace(write(TRACE_CSV, "requests.csv")).sha256
    text = f"workload: {{kind: trace, file: requests.csv, sha256: {digest}, rows: 2}}\n"
    path = write(text)
    assert load(path).workload.sha256 == digest
    write(TRACE_CSV.replace("200", "201"), "requests.csv")
    changed = read_trace(write(TRACE_CSV.replace("200", "201"), "requests.csv")).sha256
    assert message(path) == (f"workload.sha256 = {digest}: is not that of requests.csv: {changed}")


def test_digest_allows_for_sorting(write: Callable[..., Path]) -> None:
    lines = TRACE_CSV.splitlines()
    backward = "\n".join([lines[0], lines[2], lines[1]]) + "\n"
    digest = read_trace(write(backward, "requests.csv"), sort=True).sha256
    path = write(f"workload: {{kind: trace, file: requests.csv, sha256: {digest}}}\n")
    assert load(path).workload.rows == 2
    with pytest.raises(TraceError, match="is earlier than"):
        load(write("workload: {kind: trace, file: requests.csv}\n"))


def test_missing_trace_is_named(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write("workload: {kind: trace, file: requests.csv}\n")
    with pytest.raises(TraceError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{tmp_path}/requests.csv: cannot be read: No such file or directory"
    )


def test_simulation_with_a_trace_is_dumped_by_reference(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(workload=read_trace(write(TRACE_CSV, "requests.csv")))
    for name in ("config.yaml", "config.json"):
        dump(simulation, tmp_path / name)
        found = load(tmp_path / name)
        assert found == simulation
        assert found.workload.has_requests
    # A path is relative to the working directory in Python, and to its file in a file.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    relative = Simulation(workload=read_trace("requests.csv"))
    dump(relative, "configs/config.yaml")
    assert load("configs/config.yaml").workload.sha256 == relative.workload.sha256


# --- fingerprints ---------------------------------------------------------------------------------


def test_fingerprint_is_a_function_of_the_settings() -> None:
    assert fingerprint(RICH) == fingerprint(Simulation.from_dict(RICH.to_dict()))
    assert len(fingerprint(RICH)) == 64
    assert simulate(RICH).fingerprint == fingerprint(RICH) == simulate(RICH, 5).fingerprint
    code = "import spillway; print(spillway.fingerprint(spillway.Simulation()))"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(spillway.__file__).parents[1]),
            "PYTHONHASHSEED": "7",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == fingerprint(Simulation())


@pytest.mark.parametrize(
    "changes",
    [
        {"quantum_ns": 2},
        {"warm_up_s": 1e-12},
        {"horizon_s": 100},
        {"router": "always_busiest"},
        {"gateway.limit": "fixed"},
        {"gateway.limit": {"kind": "fixed", "max_in_flight": 255}},
        {"gateway.admission": ["always_admit", "always_admit"]},
        {"instances.latency.chunk_us": 1e-300},
        {"metrics.fitness[0].metric": "p50_ttft"},
        {"slo_classes[batch].target_e2e_s": 5},
        {"workload.clients.name": "b"},
        {"tenants": [{"name": "default"}]},
        {"tenants": [{"name": "default"}, {"name": "other"}]},
        {"tenants": [{"name": "other"}, {"name": "default"}]},
    ],
    ids=repr,
)
def test_fingerprint_differs_with_every_change(changes: dict[str, Any]) -> None:
    base = Simulation()
    assert fingerprint(base.with_(changes)) != fingerprint(base)


@examples(100)
@given(
    a=st.floats(0, 3.2e9),
    b=st.floats(0, 3.2e9),
    capacity=st.floats(0, 1e300),
    count=st.integers(1, 9),
)
def test_equal_simulations_have_equal_fingerprints(
    a: float, b: float, capacity: float, count: int
) -> None:
    one, other = (
        Simulation(
            warm_up_s=warm_up_s,
            gateway={"admission": gateway.TokenBucket(capacity_tokens=capacity)},
            instances={"count": count},
        )
        for warm_up_s in (a, b)
    )
    assert (one == other) is (fingerprint(one) == fingerprint(other))


def test_negative_zero_is_zero() -> None:
    one, other = Simulation(warm_up_s=0.0), Simulation(warm_up_s=-0.0)
    assert one == other
    assert fingerprint(one) == fingerprint(other)


def test_traces_count_by_their_content(write: Callable[..., Path]) -> None:
    here = read_trace(write(TRACE_CSV, "requests.csv"))
    there = read_trace(write(TRACE_CSV.replace("0.5", "0.50"), "elsewhere/copy.csv"))
    other = read_trace(write(TRACE_CSV.replace("200", "201"), "other.csv"))
    assert here.sha256 == there.sha256 != other.sha256
    assert fingerprint(Simulation(workload=here)) != fingerprint(Simulation(workload=other))
    # The digest stands for the requests, wherever they were read from.
    assert here == there
    assert hash(here) == hash(there)
    assert fingerprint(Simulation(workload=here)) == fingerprint(Simulation(workload=there))


# --- profiles -------------------------------------------------------------------------------------


def test_profiles_are_values_of_settings() -> None:
    assert profiles.vllm() == Simulation()
    server = BLIS_SERVER.replace(scheduler="priority_fcfs")
    base = Simulation(router="least_loaded", instances=server)
    blis = profiles.blis_0_6(base)
    assert (blis.quantum_ns, blis.router.ties, blis.metrics.accounting) == (1000, "random", "blis")
    (group,) = blis.instances
    assert (group.completion, group.preemption) == ("step_start", "restart")
    assert (group.output_overhead, group.scheduler.priority) == ("reported", "constant")
    assert profiles.vllm(blis) == base
    assert profiles.blis_0_6(blis) == blis
    assert (
        profiles.blis_0_6().instances
        == profiles.blis_0_6(Simulation(instances=BLIS_SERVER)).instances
    )
    # What the profile has no meaning for is turned off, and stays off.
    (ahead,) = profiles.vllm(profiles.blis_0_6(Simulation())).instances
    assert (ahead.async_scheduling, ahead.kv_cache.reserve_full_prompt) == (False, False)
    for path, values, why in profiles.SETTINGS:
        assert set(values) == set(profiles.NAMES), path
        assert len(set(values.values())) == 2
        assert why


@pytest.mark.parametrize(
    ("written", "path", "value"),
    [
        ("quantum_ns: 1", "quantum_ns", 1),
        ("quantum_ns: 7", "quantum_ns", 7),
        ("metrics: {accounting: clock}", "metrics.accounting", "clock"),
        ("metrics: {fitness: []}", "metrics.accounting", "blis"),
        ("router: least_loaded", "router.ties", "random"),
        ("router: {kind: least_loaded}", "router.ties", "random"),
        ("router: {kind: least_loaded, ties: first}", "router.ties", "first"),
        ("instances: {preemption: keep_emitted}", "instances[0].preemption", "keep_emitted"),
        ("instances: {preemption: keep_emitted}", "instances[0].completion", "step_start"),
        ("instances: [{completion: step_end}]", "instances[0].completion", "step_end"),
        ("instances: [{}, {completion: step_end}]", "instances[0].completion", "step_start"),
        ("instances: [{}, {completion: step_end}]", "instances[1].completion", "step_end"),
        ("instances: {scheduler: priority_fcfs}", "instances[0].scheduler.priority", "constant"),
        ("instances: {scheduler: {kind: reverse_priority, priority: age}}",
         "instances[0].scheduler.priority", "age"),
        ("instances: {scheduler: {kind: priority_fcfs, priority: slo_class}}",
         "instances[0].scheduler.priority", "slo_class"),
    ],
)  # fmt: skip
def test_stated_settings_win_over_the_profile(
    write: Callable[..., Path], written: str, path: str, value: Any
) -> None:
    found = load(write(f"{written}\nprofile: blis_0_6\n"))
    assert found == found.with_({path: value})


@pytest.mark.parametrize(
    "group",
    [
        {"ingress": "dual_limit_gate", "preemption": "restart"},
        {"scheduler": {"kind": "priority_fcfs", "age_weight_per_s": 1}, "preemption": "restart"},
        {"scheduler": {"kind": "priority_fcfs", "preemption_margin": 1}, "preemption": "restart"},
    ],
)
def test_profile_that_the_settings_rule_out(group: dict[str, Any], tmp_path: Path) -> None:
    simulation = Simulation(instances=BLIS_SERVER.replace(**group), quantum_ns=1000)
    with pytest.raises(ConfigError):
        profiles.blis_0_6(simulation)
    assert profiles.name_of(simulation) == "custom"
    result = simulate(simulation)
    assert result.profile == "custom"
    assert repr(result).startswith("profile custom, ")
    result.write(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["profile"] == "custom"


def test_name_of_a_profile() -> None:
    for make, name in ((profiles.vllm, "vllm"), (profiles.blis_0_6, "blis_0_6")):
        for base in (Simulation(), RICH, load(EXAMPLE)):
            assert profiles.name_of(make(base)) == name
            assert profiles.name_of(make(base).with_({"quantum_ns": 7})) == "custom"
    assert profiles.name_of(profiles.blis_0_6(RICH).with_({"router.ties": "first"})) == "custom"
    with pytest.raises(ConfigError, match="profile = 'other': must be one of vllm, blis_0_6"):
        profiles.apply("other", Simulation())
