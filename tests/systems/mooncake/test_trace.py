"""Mooncake JSONL."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.traces import SHARED_TRACES, columns_of, prompts_of, refusal, written

import spillway
from spillway import ConfigError, Simulation, instance, read_trace, simulate
from spillway.files.traces import TraceError
from spillway.systems.mooncake.write import write_mooncake

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = {"timestamp": 1500, "input_length": 30, "output_length": 2}
FILES: dict[str, tuple[list[Any], list[tuple[int, int, int]]]] = {
    "mooncake_lengths": ([LENGTHS], [(1_500_000_000, 30, 2)])
}
MALFORMED = [
    (LENGTHS | {"timestamp": -1}, "line 2, timestamp = -1: must be a number"),
    ({"delay": 5}, "line 2: not of the format mooncake_lengths: timestamp, in"),
    (LENGTHS | {"tenant": 3}, "line 2, tenant = 3: must be text"),
    (LENGTHS | {"output_length": True}, "line 2, output_length = True"),
    (LENGTHS | {"tenant": "a\ud800"}, "line 2: not valid JSON: half of a"),
    ('{"a": NaN', "line 2: not valid JSON"),
    ("[" * 100_000, "line 2: not valid JSON"),
]
COEFFICIENTS = [field.name for field in dataclasses.fields(instance.Linear)]


def mooncake(
    timestamp: object, tokens: object, ids: object, output: object = 1, **more: Any
) -> str:
    return json.dumps(
        {"timestamp": timestamp, "input_length": tokens, "output_length": output, "hash_ids": ids}
        | more
    )


def test_a_mooncake_prompt_is_a_segment_per_id(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        mooncake(0, 1100, [5, 2**64 - 1, 7], 0),
        "",
        mooncake(27, 512, [5], 3),
        mooncake(3000.000001, 513, [5, 6], 4),
    )
    found = read_trace(path)
    columns = columns_of(found)
    assert columns["arrival_ns"] == [0, 27_000_000, 3_000_000_001]
    assert columns["input_tokens"] == [1100, 512, 513]
    assert columns["output_tokens"] == [0, 3, 4]
    assert prompts_of(found) == [
        [(5, 512), (2**64 - 1, 512), (7, 76)],
        [(5, 512)],
        [(5, 512), (6, 1)],
    ]
    assert (columns["tenants"], columns["slo_classes"]) == (["default"], ["standard"])
    assert columns["request_id"] == []
    assert found.file == str(path)
    assert {"kind", "file", "sha256", "rows"} <= found.to_dict().keys()
    assert pickle.loads(pickle.dumps(found))._columns()["segment_tokens"].tolist() == [
        *(512, 512, 76),
        *(512,),
        *(512, 1),
    ]


def test_mooncake_is_recognized_by_its_name_or_its_keys(tmp_path: Path) -> None:
    lines = [mooncake(0, 5, [1]), mooncake(1, 6, [2])]
    by_keys = written(tmp_path, *lines)
    by_name = by_keys.with_suffix(".jsonl")
    by_name.write_bytes(b"\xef\xbb\xbf" + by_keys.read_bytes())
    expected = read_trace(by_keys, format="mooncake")
    assert read_trace(by_keys) == read_trace(by_name) == expected
    with pytest.raises(TraceError, match=r"not of the format columns: arrival_s, .* missing"):
        read_trace(by_name, format="columns")


def test_mooncake_in_seconds_and_other_blocks(tmp_path: Path) -> None:
    path = written(
        tmp_path, mooncake(0, 33, [1, 2, 3]), mooncake(0.25, 16, [1]), mooncake(2, 17, [1, 2])
    )
    found = read_trace(path, unit="s", block_size_tokens=16)
    assert columns_of(found)["arrival_ns"] == [0, 250_000_000, 2_000_000_000]
    assert prompts_of(found) == [[(1, 16), (2, 16), (3, 1)], [(1, 16)], [(1, 16), (2, 1)]]


def test_mooncake_with_names_and_sorted(tmp_path: Path) -> None:
    lines = (
        mooncake(5, 600, [1, 2], request_id="a", tenant="gold"),
        mooncake(5, 1, [3], request_id="b", slo_class="batch"),
        mooncake(4, 2, [4], request_id="c", tenant=""),
    )
    words = "line 3, timestamp = 4: is earlier than 5 on line 2; --sort"
    assert refusal(tmp_path, *lines).startswith(words)
    found = read_trace(written(tmp_path, *lines), sort=True)
    columns = columns_of(found)
    assert columns["request_id"] == ["c", "a", "b"]
    assert [columns["tenants"][i] for i in columns["tenant"]] == ["default", "gold", "default"]
    assert [columns["slo_classes"][i] for i in columns["slo_class"]] == [
        *("standard", "standard", "batch")
    ]
    assert (columns["tenants"], columns["slo_classes"]) == (
        ["default", "gold"],
        ["standard", "batch"],
    )
    assert prompts_of(found) == [[(4, 2)], [(1, 512), (2, 88)], [(3, 1)]]


@pytest.mark.parametrize("line", ["", "\n \n"])
def test_a_request_id_of_mooncake_given_twice(tmp_path: Path, line: str) -> None:
    twice = mooncake(0, 5, [1], request_id="a"), line, mooncake(0, 5, [1], request_id="a")
    assert "request_id = 'a': must be unique; it is also on line 1" in refusal(tmp_path, *twice)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (mooncake(0, 1600, [1]), "hash_ids = 1 ids: must be 4, one per 512 tokens of input_length"),
        (mooncake(0, 512, [1, 2]), "hash_ids = 2 ids: must be 1"),
        (mooncake(0, 5, [1.5]), "hash_ids = [Decimal('1.5')]: must be a list of whole numbers"),
        (mooncake(0, 5, [-1]), "hash_ids = [-1]: must be a list"),
        (mooncake(0, 5, [2**64]), "hash_ids = [18446744073709551616]: must be a list"),
        (mooncake(0, 5, [True]), "hash_ids = [True]: must be a list"),
        (mooncake(0, 5, 1), "hash_ids = 1: must be a list"),
        (mooncake(-1, 5, [1]), "timestamp = -1: must be a number >= 0 and <= 3200000000000 (ms)"),
        (mooncake("0", 5, [1]), "timestamp = '0': must be a number"),
        (mooncake(None, 5, [1]), "timestamp = None: must be a number"),
        (mooncake(float("nan"), 5, [1]), "timestamp = nan: must be a number"),
        (mooncake(1e300, 5, [1]), "timestamp = 1E+300: must be a number"),
        (mooncake(3_200_000_000_001, 5, [1]), "timestamp = 3200000000001: must be a number"),
        (mooncake(0, 0, []), "input_length = 0: must be a whole number >= 1 and <= 100000000"),
        (mooncake(0, 5.5, [1]), "input_length = 5.5: must be a whole number"),
        (mooncake(0, True, [1]), "input_length = True: must be a whole number"),
        (mooncake(0, 5, [1], -1), "output_length = -1: must be a whole number >= 0"),
        (mooncake(0, 5, [1], tenant=3), "tenant = 3: must be text"),
        (mooncake(0, 5, [1], request_id="a"), "request_id must be on every line or on none"),
        (mooncake(0, 5, [1]).replace("{", '{"timestamp": 1, '), "not valid JSON: the key 'timesta"),
        (mooncake(0, 5, [1]).replace("5", 5000 * "5"), "not valid JSON: a number has too many dig"),
        ('{"timestamp": 0, "input_length": 5}', "not of the format mooncake: output_length, "),
        ("[1, 2]", "must be a JSON object, not [1, 2]"),
        ('{"timestamp": 0,', "not valid JSON: "),
        ("[" * 100_000, "not valid JSON: "),
        ('{"timestamp": 1e99999999999999999999}', "not valid JSON: "),
    ],
)
def test_a_bad_line_of_mooncake_is_named(tmp_path: Path, line: str, words: str) -> None:
    message = refusal(tmp_path, mooncake(0, 5, [1]), "", line, mooncake(0, 5, [1]))
    place, _, problem = message.partition("line 3")
    assert place == ""
    assert problem.lstrip(",: ").startswith(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unit": "ns"}, "unit = 'ns': must be auto or us or ms or s"),
        ({"block_size_tokens": 0}, "block_size_tokens = 0: must be >= 1"),
        ({"spread_s": -1}, "spread_s = -1: must be >= 0"),
        ({"spread_s": float("nan")}, "spread_s = nan: must be >= 0"),
        ({"seed": -1}, "seed = -1: must be >= 0"),
    ],
)
def test_bad_options_of_mooncake(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(tmp_path, mooncake(0, 5, [1])), **options)
    assert str(caught.value).startswith(words)


def test_options_of_mooncake_are_for_mooncake(tmp_path: Path) -> None:
    for options, others in (
        ({"unit": "s"}, "mooncake, mooncake_lengths"),
        ({"block_size_tokens": 16}, "aiperf, bailian, mooncake"),
        ({"spread_s": 3}, "mooncake, mooncake_lengths"),
    ):
        ((name, value),) = options.items()
        header = "arrival_s,input_tokens,output_tokens"
        assert refusal(tmp_path, header, "0,5,1", **options) == (
            f"{name} = {value!r}: unknown option of the format columns; it has no options; "
            f"{name} is an option of {others}"
        )


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"\n\n", "empty"), (b"\xff\n", "not a text file")],
)
def test_unusable_mooncake_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: {words}")
    with pytest.raises(TraceError, match=r"missing\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "missing.jsonl")


def test_requests_of_an_instant_are_spread_in_order(tmp_path: Path) -> None:
    stamps = [0] * 300 + [2000] + [3000] * 100
    path = written(tmp_path, *(mooncake(stamp, 1 + i, [i]) for i, stamp in enumerate(stamps)))
    with pytest.warns(UserWarning, match="401 requests arrive at only 3 instants") as caught:
        as_it_is = read_trace(path)
    assert caught[0].filename == __file__
    spread = read_trace(path, spread_s=3)
    columns = columns_of(spread)
    arrival_s = np.array(columns["arrival_ns"]) / 1e9
    assert columns["input_tokens"] == list(range(1, 402))
    assert (np.diff(arrival_s) >= 0).all()
    # Over three seconds, but not beyond the next timestamp of the file.
    for first, last, begin_s, end_s in ((0, 300, 0, 2), (300, 301, 2, 3), (301, 401, 3, 6)):
        some = arrival_s[first:last]
        assert some.min() >= begin_s
        assert some.max() < end_s
        if last - first > 1:
            assert some.mean() == pytest.approx((begin_s + end_s) / 2, abs=0.3)
    assert read_trace(path, spread_s=3) == spread
    assert read_trace(path, spread_s=3, seed=1) != spread
    assert as_it_is != spread
    assert read_trace(path, spread_s=1e-9) == as_it_is  # there is no room


def test_spread_arrivals_are_the_same_on_every_machine(tmp_path: Path) -> None:
    path = written(tmp_path, *(mooncake(0, 5, [1]) for _ in range(3)))
    found = columns_of(read_trace(path, spread_s=1, seed=7))
    assert found["arrival_ns"] == [625_095_466, 775_685_690, 897_213_800]


def test_unused_keys_are_noted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        mooncake(0, 512, [5], 3, tenant="a"),
        mooncake(1, 512, [5], 3, tennant="a", session_id=7),
    )
    with pytest.warns(
        UserWarning, match=r"unused columns: tennant \(did you mean tenant\?\), session_id;"
    ):
        read_trace(path)


def test_a_configuration_file_finds_its_mooncake_trace(tmp_path: Path) -> None:
    path = written(tmp_path, mooncake(0, 5, [1]), mooncake(1, 5, [1])).rename(
        tmp_path / "trace.jsonl"
    )
    config = tmp_path / "config.yaml"
    for options in ({}, {"unit": "s"}):
        simulation = Simulation(workload=read_trace(path, **options))
        spillway.dump(simulation, config)
        if not options:
            assert spillway.load(config) == simulation
    with pytest.raises(ConfigError, match=r"workload\.sha256.*traffic\.write"):
        spillway.load(config)


def ideal_hit_rate(path: Path, block: int) -> float:
    """Share of the full KV blocks of all prompts that an earlier prompt began with."""
    seen: set[tuple[int, ...]] = set()
    hits = lookups = 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for at in range(len(row["hash_ids"])):
            tokens = min(512, row["input_length"] - 512 * at)
            beginning = (hash(tuple(row["hash_ids"][: at + 1])), tokens)
            lookups += tokens // block
            hits += tokens // block if beginning in seen else 0
            seen.add(beginning)
    return hits / lookups


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "input_tokens", "output_tokens"),
    [("conversation", 12_031, 144_793_823, 4_122_048), ("synthetic", 3_993, 61_194_628, 595_432)],
)
def test_public_mooncake_traces(
    tmp_path: Path, name: str, rows: int, input_tokens: int, output_tokens: int
) -> None:
    path = SHARED_TRACES / f"mooncake_{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing: the public traces are not part of the repository")
    found = read_trace(path, spread_s=3)
    columns = found._columns()
    assert found.rows == rows
    assert columns["input_tokens"].sum() == input_tokens
    assert columns["output_tokens"].sum() == output_tokens
    write_mooncake(found, tmp_path / "again.jsonl")
    assert read_trace(tmp_path / "again.jsonl") == found
    if name == "conversation":
        with pytest.warns(UserWarning, match="12031 requests arrive at only 1180 instants"):
            read_trace(path)
    else:
        read_trace(path)

    # Memory for everything and a fleet of one that is never behind: a later request finds the
    # blocks of all earlier ones.
    simulation = Simulation(
        workload=found,
        instances={
            "count": 1,
            "max_num_seqs": 100_000,
            "max_num_batched_tokens": 100_000_000,
            "max_model_len": 0,
            "block_size_tokens": 16,
            "num_kv_blocks": 20_000_000,
            "kv_cache": {"prefix_caching": True},
            "latency": instance.Linear(**dict.fromkeys(COEFFICIENTS, 0) | {"beta0_us": 1}),
        },
    )
    (server,) = simulate(simulation).instances
    ideal = ideal_hit_rate(path, 16)
    rate = server["kv_hits"] / server["kv_lookups"]
    assert 0.3 < rate <= ideal
    assert rate == pytest.approx(ideal, abs=0.01)


# --- what a file does not state -------------------------------------------------------------------

SECONDS = "its timestamps look like seconds, and are read as milliseconds"


@pytest.mark.parametrize(
    "times",
    [
        [0.072, 1.012, 1.734, 1.881],
        [0.0, 0.2, 0.4],
        [0, 60.5, 121.25],
        [*range(20)],
        [at // 2 for at in range(40)],
        [at * 0.01 for at in range(5000)],
    ],
)
def test_timestamps_that_look_like_seconds_are_noted(tmp_path: Path, times: list[float]) -> None:
    path = written(tmp_path, *(mooncake(at, 5, [1]) for at in times))
    with pytest.warns(
        UserWarning, match=rf"{SECONDS}: {len(times):,} requests in .* --trace-unit s"
    ):
        found = read_trace(path)
    assert columns_of(found)["arrival_ns"][-1] == round(times[-1] * 1e6)
    assert read_trace(path, unit="ms") == found
    in_seconds = columns_of(read_trace(path, unit="s"))
    assert in_seconds["arrival_ns"][-1] == round(times[-1] * 1e9)


@pytest.mark.parametrize(
    "times",
    [
        [0, 27, 3000],
        [at * 5 for at in range(1000)],
        [at * 100.25 for at in range(100)],
        [0] * 50,
    ],
)
def test_timestamps_in_milliseconds_are_not(tmp_path: Path, times: list[float]) -> None:
    read_trace(written(tmp_path, *(mooncake(at, 5, [1]) for at in times)))


def test_ids_of_full_blocks_leave_the_rest_unshared(tmp_path: Path) -> None:
    lines = (
        mooncake(0, 1200, [1, 2]),
        mooncake(100, 1200, [1, 2]),
        mooncake(200, 300, []),
        mooncake(300, 1024, [1, 3]),
    )
    with pytest.warns(UserWarning, match="hash_ids of full blocks only"):
        found = read_trace(written(tmp_path, *lines))
    assert prompts_of(found) == [
        [(1, 512), (2, 512)],
        [(1, 512), (2, 512)],
        [],
        [(1, 512), (3, 512)],
    ]
    assert columns_of(found)["input_tokens"] == [1200, 1200, 300, 1024]


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        ([(33, [1, 2]), (40, [1, 2]), (15, [])], 16),  # of vLLM
        ([(100, [9]), (130, [9, 8])], 64),  # of Dynamo
        ([(1000, [7])], 512),  # a prompt alone
        ([(1024, [1, 2]), (1300, [1, 2]), (1500, [1, 3])], 512),  # some whole
    ],
)
def test_ids_of_full_blocks_of_other_sizes(
    lines: list[tuple[int, list[int]]], size: int, tmp_path: Path
) -> None:
    given = (mooncake(at, tokens, ids) for at, (tokens, ids) in enumerate(lines))
    with pytest.warns(UserWarning, match="hash_ids of full blocks only"):
        found = read_trace(written(tmp_path, *given), block_size_tokens=size)
    assert prompts_of(found) == [[(name, size) for name in ids] for _, ids in lines]
    assert columns_of(found)["input_tokens"] == [tokens for tokens, _ in lines]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([(1200, [1, 2]), (1200, [1, 2, 3]), (600, [1])], "line 2, hash_ids = 3 ids: must be 2"),
        ([(1200, [1, 2, 3]), (600, [1, 2]), (600, [1])], "line 3, hash_ids = 1 ids: must be 2"),
        ([(1200, [1])], "line 1, hash_ids = 1 ids: must be 3"),
        ([(1200, [])], "line 1, hash_ids = 0 ids: must be 3"),
    ],
)
def test_other_numbers_of_ids_are_refused(
    tmp_path: Path, lines: list[tuple[int, list[int]]], message: str
) -> None:
    given = (mooncake(0, tokens, ids) for tokens, ids in lines)
    assert refusal(tmp_path, *given).startswith(message)
