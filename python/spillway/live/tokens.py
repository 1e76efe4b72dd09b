"""A tokenizer without a vocabulary: short words are one token, and every text can be restored."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECE = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
_BYTES = 5
_WORDS = (" the", " a", " of", " and", " to", " in", " is", " it", " on", " as", " we", " are")


def encode(text: str) -> list[int]:
    """The tokens of a text: each piece of at most five bytes as a number."""
    tokens = []
    for piece in _PIECE.findall(text):
        data = piece.encode("utf-8", "replace")
        tokens += [
            int.from_bytes(b"\x01" + data[i : i + _BYTES], "big")
            for i in range(0, len(data), _BYTES)
        ]
    return tokens


def decode(tokens: Sequence[int]) -> str:
    """The text of tokens that `encode` has made; of other numbers, replacement characters."""
    parts = [token.to_bytes((token.bit_length() + 7) // 8 or 1, "big")[1:] for token in tokens]
    return b"".join(parts).decode("utf-8", "replace")


def words(start: int, count: int) -> str:
    """Output from a token on: as many words as tokens."""
    return "".join(_WORDS[i % len(_WORDS)] for i in range(start, start + count))


def segments(tokens: Sequence[int], block: int, salt: bytes) -> list[tuple[int, int]]:
    """Whole blocks of a prompt as (content, tokens): hashes that only the salt relates to it."""
    found = []
    for begin in range(0, len(tokens) - block + 1, block):
        text = ",".join(map(str, tokens[begin : begin + block])).encode()
        digest = hashlib.blake2b(text, digest_size=8, key=salt).digest()
        found.append((1 + (int.from_bytes(digest, "big") >> 12), block))
    return found
