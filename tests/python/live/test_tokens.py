"""The tokenizer: any text is restored, and its files give the same tokens elsewhere."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from spillway.live import tokens

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = [
    "We hold these truths to be self-evident, that all men are created equal.",
    "Grüße, 世界! \n\t 🙂🙂 a_b  c",
    "  \n\n\n  for (int i = 0; i < 1234567; ++i) { x[i] += 0.5; }\r\n",
    "x" * 1000,
    " " * 1000,
    "\x00\x1f\x7f\x80\uffff\U0010ffff",
]


def random_text(rng: random.Random) -> str:
    def character() -> str:
        kind = rng.randrange(4)
        if kind == 0:
            return chr(rng.randrange(0x80))
        if kind == 1:
            return chr(rng.choice([rng.randrange(0x80, 0xD800), rng.randrange(0xE000, 0x110000)]))
        return " " if kind == 2 else chr(rng.randrange(97, 123))

    return "".join(character() for _ in range(rng.randrange(80)))


def test_every_text_is_restored() -> None:
    rng = random.Random(1)
    for text in [*SAMPLES, *(random_text(rng) for _ in range(500))]:
        assert tokens.decode(tokens.encode(text)) == text


def test_words_of_outputs_are_tokens() -> None:
    for start in range(12):
        assert len(tokens.encode(tokens.words(start, 30))) == 30


def test_english_has_about_two_tokens_a_word() -> None:
    text = SAMPLES[0]
    assert 1.2 < len(tokens.encode(text)) / len(text.split()) < 2.5


def test_the_first_tokens_are_those_of_the_whole() -> None:
    text = SAMPLES[0] * 50
    some, whole = tokens.encode(text, 100), tokens.encode(text)
    assert whole[: len(some)] == some
    assert 100 <= len(some) < 120


def test_a_long_body_of_strange_text_ends_early() -> None:
    text = random_text(random.Random(2)) * 200_000
    began_s = time.process_time()
    assert len(tokens.encode(text, 2048)) < 2200
    assert time.process_time() - began_s < 0.1


def test_files_are_small_and_the_same_every_time(tmp_path: Path) -> None:
    for folder in ("a", "b/c"):
        tokens.write(tmp_path / folder)
    found = [(tmp_path / folder / "tokenizer.json").read_bytes() for folder in ("a", "b/c")]
    assert found[0] == found[1]
    sizes = [file.stat().st_size for file in (tmp_path / "a").iterdir()]
    assert sum(sizes) <= 300_000
