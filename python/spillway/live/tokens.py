"""A tokenizer that a rule defines: a byte is a token, and so are frequent pieces of words."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# The longest that are looked up at once: letters, with all that is not ASCII; digits; punctuation;
# spaces; control characters. Only ASCII classes, which every engine of regular expressions has.
_PIECE = (
    r" ?[^\x00-@\[-`{-\x7f]{1,16}| ?[0-9]{1,3}| ?[!-/:-@\[-`{-~]{1,4}| {1,16}|[\x00-\x1f\x7f]{1,16}"
)
_WORDS = (" the", " a", " of", " and", " to", " in", " is", " it", " on", " as", " we", " are")
_FREQUENT = """
about after again all also always am among an another any around at away back be because been
before being below between both but by call came can change come could day did do does done down
each end even every example few find first for found four from gave get give go good got great had
has have he help her here high him his how if into its just keep kind know large last left less let
life like line list little live long look made make man many may me mean might model more most much
must my name need never new next no not now number off old only open or order other our out over own
page part people place point power prompt put question rate read request response right run said
same say second see server set she should show side small so some start state still such system take
talk text than that their them then there these they thing think this those thought three through
time token too total turn two under until up upon us use user very want was water way well went were
what when where which while whole why will with within without word work world would write year you
your able age ally ance ant ary ate ation cial cian ence ent ern ers est ever fer form ful gain gram
ial ible ical ice ics ied ies ing ings ion ions ish ism ist ity ive ization ize ized less light lish
ling lity ment ments ness nter ology ound ous over per port ment pre pro rect self ship side sion
some ssion sted ster tain ted tely tempt ten ter ther ther tial tic ting tion tional tions tive tor
tory tron ture ual ular uld under ure ution ward ways
"""
_CHAT = (  # as `wire` writes the messages of a chat
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "assistant:"
)
_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
_NUMBERS = range(1000)


@functools.cache
def vocabulary() -> dict[bytes, int]:
    """The tokens by their bytes; the first 256 are the single bytes."""
    letters = _VOWELS + _CONSONANTS
    words = [
        *_FREQUENT.split(),
        *(word.strip() for word in _WORDS),
        *letters,
        *("".join(pair) for pair in itertools.product(letters, repeat=2)),
        *("".join(parts) for parts in itertools.product(_CONSONANTS, _VOWELS, "lmnrstcdpg")),
        *("".join(parts) for parts in itertools.product(_VOWELS, "cdlmnprst", _VOWELS)),
    ]
    words += [word.capitalize() for word in words]
    pieces = [
        *words,
        *map(str, _NUMBERS),
        *(" " * count for count in range(2, 17)),
        *("\n" * count for count in range(2, 5)),
    ]
    pieces += [
        " " + piece for piece in [*words, *map(str, _NUMBERS), *"!\"#$%&'()*+,-./:;<=>?@[]_{}"]
    ]
    tokens = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in pieces]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


@functools.cache
def _longest() -> int:
    return max(map(len, vocabulary()))


@functools.lru_cache(maxsize=1 << 16)
def _of_piece(piece: str) -> tuple[int, ...]:
    data, known, found, begin = piece.encode("utf-8", "replace"), vocabulary(), [], 0
    while begin < len(data):
        end = min(len(data), begin + _longest())
        while (token := known.get(data[begin:end])) is None:
            end -= 1
        found.append(token)
        begin = end
    return tuple(found)


def encode(text: str, most: int | None = None) -> list[int]:
    """The tokens of a text: in each of its pieces, always the longest that comes next.

    Ends after `most`, or a few more.
    """
    found: list[int] = []
    for piece in re.finditer(_PIECE, text):
        found += _of_piece(piece[0])
        if most is not None and len(found) >= most:
            break
    return found


def decode(tokens: Sequence[int]) -> str:
    """The text of tokens; of numbers that are none, replacement characters."""
    known = list(vocabulary())
    parts = [known[token] if token < len(known) else b"\xff" for token in tokens]
    return b"".join(parts).decode("utf-8", "replace")


def write(folder: str | Path) -> None:
    """Writes the tokenizer as files that `transformers` and `tokenizers` load."""
    visible = _visible()
    model = {
        "type": "WordPiece",
        "unk_token": visible[ord("?")],
        "continuing_subword_prefix": "",
        "max_input_chars_per_word": 100,
        "vocab": {"".join(visible[byte] for byte in t): i for t, i in vocabulary().items()},
    }
    split = {"type": "Split", "pattern": {"Regex": _PIECE}, "behavior": "Isolated", "invert": False}
    by_byte = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    files: dict[str, Any] = {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, by_byte]},
            "post_processor": None,
            "decoder": by_byte,
            "model": model,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT,
        },
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (Path(folder) / name).write_text(json.dumps(content, separators=(",", ":")) + "\n")


def _visible() -> list[str]:
    """A printable character for each byte, as byte-level tokenizers have them."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]


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
