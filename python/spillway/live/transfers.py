"""Prompts that one server computes and another one goes on with, as routers ask for it.

The fields are those of `kv_transfer_params`, by which vLLM's NIXL connector and the routers in
front of it (llm-d's sidecar, vLLM's own proxies) speak. A prefill server that is asked with
`do_remote_decode` keeps the blocks of the prompt and answers with parameters; a decode server that
is asked with these reads the blocks instead of computing them. What becomes of parameters that name
no such blocks follows vllm-project/vllm#52234, where that was measured for vLLM 0.29: the prompt is
computed anew, and the answer has status 200.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.live.wire import RefusedError, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLICIES = ("recompute", "fail")
#: What becomes of requests with such parameters.
RESULTS = (
    "kept", "read", "ignored", "invalid", "unknown_engine", "unknown_request", "read_before",
    "expired", "lost", "other_prompt",
)  # fmt: skip
_LEASE_S, _TIMEOUT_S = 30.0, 480.0
_FIRST_LEASE = (0, 22)
_FIRST_SIDE_PORT = 5600
_MOST_FIELDS = 32
_LONGEST_NAME = 256
_MOST_ENDED = 4096
_NEEDED = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")


def lease_s(version: tuple[int, int]) -> float:
    """How long vLLM keeps a prompt that no server asks for (s).

    From the lease of vllm-project/vllm#41383 on; before, `VLLM_NIXL_ABORT_REQUEST_TIMEOUT`.
    """
    return _LEASE_S if version >= _FIRST_LEASE else _TIMEOUT_S


@dataclass(frozen=True)
class Wanted:
    """What the `kv_transfer_params` of a request ask for: to keep its prompt, or to read one."""

    keeps: bool = False
    engine: str = ""
    request: str = ""
    blocks: tuple[int, ...] = ()
    is_whole: bool = True  # no field that names the blocks is missing


def wanted(given: Any, most_blocks: int) -> Wanted | None:
    """What parameters ask for; None: nothing. Raises RefusedError for what is no such thing."""
    if given is None:
        return None
    if not isinstance(given, dict) or len(given) > _MOST_FIELDS:
        allowed = f"must be an object of at most {_MOST_FIELDS} fields"
        raise _refused("", given, allowed)
    keeps, reads = (
        _field(given, name, bool) or False for name in ("do_remote_decode", "do_remote_prefill")
    )
    if keeps and reads:
        raise _refused(".do_remote_prefill", True, "must be false with do_remote_decode")
    if not reads:
        return Wanted(keeps=True) if keeps else None
    return Wanted(
        engine=_field(given, "remote_engine_id", str) or "",
        request=_field(given, "remote_request_id", str) or "",
        blocks=_blocks(given, most_blocks),
        is_whole=all(given.get(name) is not None for name in _NEEDED),
    )


def _field(given: Mapping[str, Any], name: str, kind: type) -> Any:
    value = given.get(name)
    if value is not None and not isinstance(value, kind):
        raise _refused(f".{name}", value, f"must be of type {kind.__name__}")
    if isinstance(value, str) and len(value) > _LONGEST_NAME:
        raise _refused(f".{name}", value, f"must have at most {_LONGEST_NAME} characters")
    return value


def _blocks(given: Mapping[str, Any], most: int) -> tuple[int, ...]:
    found = _field(given, "remote_block_ids", list) or []
    if len(found) == 1 and isinstance(found[0], list):  # one list per group of layers
        found = found[0]
    if len(found) > most:
        raise _refused(".remote_block_ids", found, f"must be at most {most} numbers")
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in found):
        raise _refused(".remote_block_ids", found, "must be numbers of blocks")
    return tuple(found)


def _refused(field: str, value: Any, allowed: str) -> RefusedError:
    name = f"kv_transfer_params{field}"
    return RefusedError(400, f"{name} = {short(value)}: {allowed}", "kv_transfer_params")


@dataclass(frozen=True)
class Kept:
    """A prompt that a server keeps."""

    number: int  # of its request in the session
    instance: int
    engine: str
    name: str  # of its request on the wire
    blocks: tuple[int, ...]
    digest: bytes  # of the prompt


class Transfers:
    """The prompts that the servers keep, by the names that their answers have for them."""

    def __init__(self, num_blocks: Sequence[int], block_tokens: Sequence[int], salt: bytes) -> None:
        """Of each server how many KV blocks it has, and how large they are."""
        self._num_blocks = num_blocks
        self._block_tokens = block_tokens
        self._salt = salt
        self._lives: Counter[int] = Counter()
        self._next_block: Counter[int] = Counter()
        self._kept: dict[int, Kept] = {}
        self._numbers: dict[tuple[str, str | tuple[int, ...]], int] = {}
        self._ended: OrderedDict[tuple[str, str], str] = OrderedDict()
        self.most_blocks = max(num_blocks)
        self._before: dict[tuple[int, str], int] = {}
        #: How often each of RESULTS has come, by instance.
        self.results: Counter[tuple[int, str]] = Counter()

    def engine(self, instance: int) -> str:
        """The name of a server, which it has until it crashes."""
        text = f"{instance}:{self._lives[instance]}".encode()
        name = hashlib.blake2b(text, digest_size=16, key=self._salt).hexdigest()
        return "-".join((name[:8], name[8:12], name[12:16], name[16:20], name[20:]))

    def restart(self, instance: int) -> None:
        """A server has crashed: its name ends with its process, and so do vLLM's counts."""
        self._lives[instance] += 1
        self._before |= {key: n for key, n in self.results.items() if key[0] == instance}

    def of_process(self, instance: int, result: str) -> int:
        """How often a result has come since the server last started."""
        return self.results[instance, result] - self._before.get((instance, result), 0)

    def digest(self, prompt: Sequence[int]) -> bytes:
        """By which prompts are compared."""
        text = ",".join(map(str, prompt)).encode()
        return hashlib.blake2b(text, digest_size=16, key=self._salt).digest()

    def keep(self, number: int, instance: int, name: str, prompt: Sequence[int]) -> dict[str, Any]:
        """A server keeps a prompt from now on. Returns the parameters that its answer has."""
        count = -(-len(prompt) // self._block_tokens[instance])
        first, most = self._next_block[instance], self._num_blocks[instance]
        self._next_block[instance] = (first + count) % most
        kept = Kept(
            number=number,
            instance=instance,
            engine=self.engine(instance),
            name=name,
            blocks=tuple((first + i) % most for i in range(count)),
            digest=self.digest(prompt),
        )
        self._kept[number] = kept
        self._numbers[kept.engine, kept.name] = number
        self._numbers[kept.engine, kept.blocks] = number
        self.results[instance, "kept"] += 1
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": list(kept.blocks),
            "remote_engine_id": kept.engine,
            "remote_request_id": kept.name,
            "remote_host": "127.0.0.1",
            "remote_port": _FIRST_SIDE_PORT + instance,
            "tp_size": 1,
        }

    def find(self, asked: Wanted) -> Kept | str:
        """The prompt that parameters name, or why there is none."""
        if not asked.is_whole:
            return "invalid"
        if asked.engine not in map(self.engine, range(len(self._num_blocks))):
            return "unknown_engine"
        name: str | tuple[int, ...] = asked.request or asked.blocks
        number = self._numbers.get((asked.engine, name))
        if number is not None:
            return self._kept[number]
        return self._ended.get((asked.engine, asked.request), "unknown_request")

    def end(self, number: int, why: str) -> None:
        """A prompt is not kept any more, if it was."""
        kept = self._kept.pop(number, None)
        if kept is None:
            return
        for name in (kept.name, kept.blocks):
            if self._numbers.get((kept.engine, name)) == number:
                del self._numbers[kept.engine, name]
        self._ended[kept.engine, kept.name] = why
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        if why in ("expired", "lost"):
            self.results[kept.instance, why] += 1
