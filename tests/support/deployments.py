"""Configuration files of real systems, and their import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.paths import DATA

from spillway import ConfigError
from spillway.files.deployments import import_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOLDEN = DATA / "deployments"


def written(folder: Path, **files: str) -> Iterator[Path]:
    """Files by name, with two underscores for the point."""
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        yield path


def refused(*arguments: Any, **options: Any) -> str:
    """The message of an import that is refused."""
    with pytest.raises(ConfigError) as caught:
        import_(*arguments, **options)
    return str(caught.value)
