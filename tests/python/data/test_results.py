"""Results as files."""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.settings import ODD as RICH

from spillway import Result, Simulation, fingerprint, gateway, profiles, simulate, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


ODD_IDS = ["plain", "with,comma", 'with "quotes"', "two\nlines", "", " space ", "größe", "1e5"]


def odd_result(horizon_s: float | None = None) -> Result:
    """A run with every kind of row: completed, rejected by either stage, unfinished."""
    n = len(ODD_IDS)
    requests = trace(
        arrival_s=np.arange(n) * 0.125,
        input_tokens=[100, 5000, 100, 100, 100, 100, 100, 100],
        output_tokens=[2, 1, 1, 40_000, 0, 3, 3, 400],
        request_id=ODD_IDS,
        tenant=["gold", "a,b"] * (n // 2),
    )
    bucket = gateway.TokenBucket(capacity_tokens=1000, refill_tokens_per_s=100)
    simulation = Simulation(
        workload=requests,
        gateway={"admission": bucket},
        instances={"count": 2, "num_kv_blocks": 50},
        horizon_s=horizon_s,
    )
    return simulate(simulation, seed=3)


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream, strict=True))


def test_requests_csv(tmp_path: Path) -> None:
    result = odd_result(horizon_s=0.9)
    assert {"completed", "rejected", "running"} <= set(result.requests["outcome"])
    result.write(tmp_path / "deep" / "er")
    path = tmp_path / "deep" / "er" / "requests.csv"
    header, *rows = read_csv(path)
    assert header == [
        "request_id", "tenant", "slo_class", "outcome", "reason", "instance", "arrival_s", "ttft_s",
        "e2e_s", "queue_s", "scheduling_delay_s", "itl_mean_s", "input_tokens", "output_tokens",
        "requested_output_tokens",
    ]  # fmt: skip
    assert [row[0] for row in rows] == ODD_IDS
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        column = result.requests[name]
        for cell, value in zip(cells, column.tolist(), strict=True):
            if name.endswith("_s"):
                assert cell == ("" if math.isnan(value) else f"{value:.9f}")
            elif name == "instance":
                assert cell == ("" if value < 0 else str(value))
            else:
                assert cell == str(value)
    by_name = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    shed = by_name["with,comma"]
    assert (shed["outcome"], shed["reason"]) == ("rejected", "insufficient_tokens")
    assert (shed["instance"], shed["ttft_s"], shed["queue_s"]) == ("", "", "")
    refused = by_name["two\nlines"]
    assert (refused["outcome"], refused["reason"]) == ("rejected", "unservable")
    assert refused["instance"] in ("0", "1")
    assert (refused["queue_s"], refused["ttft_s"]) == ("0.000000000", "")
    assert by_name["plain"]["arrival_s"] == "0.000000000"
    assert by_name["plain"]["reason"] == ""


def test_requests_csv_is_rfc_4180(tmp_path: Path) -> None:
    odd_result().write(tmp_path)
    content = (tmp_path / "requests.csv").read_bytes().decode()
    assert '"with,comma",' in content
    assert '"with ""quotes""",' in content
    assert '"two\nlines",' in content
    # Every record ends in CRLF, and a bare line feed occurs only within quotes.
    assert content.endswith("\r\n")
    assert content.replace("\r\n", "").count("\n") == 1


def test_summary_json(tmp_path: Path) -> None:
    result = odd_result(horizon_s=0.9)
    result.write(tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = (tmp_path / "summary.json").read_text()
    content = json.loads(text, parse_constant=refuse)
    assert list(content) == [
        "schema", "version", "profile", "seed", "fingerprint", "ledger", "metrics", "by_class",
        "by_tenant",
    ]  # fmt: skip
    assert content == result.to_dict()
    assert (content["schema"], content["profile"], content["seed"]) == (1, "vllm", 3)
    assert content["fingerprint"] == fingerprint(result.simulation)
    assert content["metrics"] == dict(result.summary())
    assert set(content["by_tenant"]) == {"gold", "a,b"}
    assert text.endswith("}\n")


def test_results_of_one_simulation_are_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        odd_result().write(tmp_path / name)
    for file in ("requests.csv", "summary.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["requests.csv", "summary.json"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: simulate(RICH, 2**64 - 1),
        lambda: odd_result(horizon_s=0.9),
        lambda: simulate(profiles.blis_0_6(), 1),
        lambda: simulate(Simulation(gateway={"admission": "reject_all"})),
    ],
    ids=["synthetic", "trace", "blis_0_6", "all rejected"],
)
def test_save_and_load(tmp_path: Path, make: Callable[[], Result]) -> None:
    result = make()
    result.save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["result.npz"]
    assert loaded.seed == result.seed
    assert loaded.simulation == result.simulation
    assert loaded.fingerprint == result.fingerprint
    assert loaded.to_dict() == result.to_dict()
    assert dict(loaded.summary()) == dict(result.summary())
    assert (loaded.ledger, loaded.instances) == (result.ledger, result.instances)
    assert (loaded.steps, loaded.events) == (result.steps, result.events)
    assert repr(loaded) == repr(result)
    assert list(loaded.requests) == list(result.requests)
    for name in result.requests:
        before, after = result.requests[name], loaded.requests[name]
        assert after.dtype == before.dtype
        assert np.array_equal(after, before, equal_nan=before.dtype.kind == "f")
    assert not loaded.requests["ttft_s"].flags.writeable
    for where, either in (("a", result), ("b", loaded)):
        either.write(tmp_path / where)
    for file in ("requests.csv", "summary.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def archive(**entries: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **entries)
    return stream.getvalue()


def array_file() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    return stream.getvalue()


NO_RESULTS = {
    "empty": b"",
    "text": b"something else\n",
    "no document": archive(x=1),
    "no JSON": archive(document=np.array("no JSON")),
    "version": archive(document=np.array('{"result_version": 999}')),
    "no version": archive(document=np.array("{}")),
    "array": array_file(),
    "cut off": archive(x=1)[:100],
}


@pytest.mark.parametrize("what", NO_RESULTS)
def test_files_that_hold_no_result(tmp_path: Path, what: str) -> None:
    path = tmp_path / "result.npz"
    path.write_bytes(NO_RESULTS[what])
    assert_unreadable(path)


def assert_unreadable(path: Path) -> None:
    said = f"ValueError: {path} holds no result that this version can read"
    assert refusal(path).startswith(said)


def refusal(path: Path) -> str:
    """Why a result cannot be loaded. Keeps no traceback, so that nothing keeps the file open."""
    try:
        Result.load(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_damaged_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    odd_result().save(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    path.write_bytes(content)
    assert_unreadable(path)


def members(path: Path) -> dict[str, Any]:
    """What a saved result holds."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def with_document(entries: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> Any:
    """The entries with another document."""
    document = json.loads(str(entries["document"]))
    change(document)
    return {**entries, "document": np.array(json.dumps(document))}


def without(entries: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry for name, entry in entries.items() if name not in names}


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no simulation": lambda e: with_document(e, lambda d: d.pop("simulation")),
    "no output": lambda e: with_document(e, lambda d: d.pop("output")),
    "no seed": lambda e: with_document(e, lambda d: d.pop("seed")),
    "no ledger": lambda e: with_document(e, lambda d: d["output"].pop("ledger")),
    "ledger of another type": lambda e: with_document(e, lambda d: d["output"].update(ledger=3)),
    "bad simulation": lambda e: with_document(e, lambda d: d["simulation"].update(router="x")),
    "document is a list": lambda e: {**e, "document": np.array("[]")},
    "document nested deeply": lambda e: {**e, "document": np.array(99_999 * "[")},
    "document of numbers": lambda e: {**e, "document": np.arange(3)},
    "missing column": lambda e: without(e, "column_ttft_s"),
    "shorter column": lambda e: {**e, "column_ttft_s": e["column_ttft_s"][:-1]},
    "column of another type": lambda e: {**e, "column_ttft_s": e["column_ttft_s"].astype("U8")},
    "another column": lambda e: {**e, "column_x": e["column_ttft_s"]},
    "number without a name": lambda e: {**e, "column_tenant": e["column_tenant"] + np.uint16(999)},
    "another member": lambda e: {**e, "x": np.arange(3)},
}
# Changes that only a digest detects.
CHANGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "changed figure": lambda e: with_document(
        e, lambda d: d["output"]["summary"].update(completed=7)
    ),
    "changed seed": lambda e: with_document(e, lambda d: d.update(seed=7)),
    "changed column": lambda e: {**e, "column_ttft_s": e["column_ttft_s"] + 1},
    "no digest": lambda e: without(e, "digest"),
}


@pytest.mark.parametrize("how", [*TAMPERED, *CHANGED])
def test_tampered_result_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "result.npz"
    odd_result().save(path)
    path.write_bytes(archive(**(TAMPERED | CHANGED)[how](members(path))))
    assert_unreadable(path)


def test_bomb_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.npz"
    odd_result().save(path)
    entries = members(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as bomb, bomb.open("x.npy", "w") as out:
        head = io.BytesIO()
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**9,)}
        np.lib.format.write_array_header_1_0(head, header)
        out.write(head.getvalue() + bytes(10**7))
    read: list[int] = []
    read_array = np.lib.format.read_array

    def counted(stream: Any, **options: Any) -> Any:
        array = read_array(stream, **options)
        read.append(array.nbytes)
        return array

    monkeypatch.setattr(np.lib.format, "read_array", counted)
    assert "its arrays are not those that were saved" in refusal(path)
    assert read == [entries["document"].nbytes]
    monkeypatch.setenv("SPILLWAY_MEMORY_GB", "7.9")
    read.clear()
    assert "it takes 8 GB of memory, but 7.9 GB are available" in refusal(path)
    assert read == []


def test_missing_result_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "result.npz")
