"""A tokenizer in the format of Hugging Face whose tokens are the printable characters."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SPECIAL = ("<unk>", "<s>", "</s>")
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write(folder: Path) -> None:
    """Writes the files that `AutoTokenizer.from_pretrained(folder)` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    # Without the four unusual kinds of space, which tools strip.
    characters = [*string.printable[:-5], "\n"]
    vocabulary = {token: at for at, token in enumerate((*_SPECIAL, *characters))}
    added = [
        {
            "id": vocabulary[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in _SPECIAL
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": 8192,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    model = {"model_type": "llama", "vocab_size": len(vocabulary), "max_position_embeddings": 8192}
    for name, content in (
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", settings),
        ("config.json", model),
    ):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
