"""The source code of a policy written in Python: its hash."""

from __future__ import annotations

import hashlib
import inspect
import marshal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType


def source_sha256(target: Any) -> str:
    """Hash of the source of a class or function; of its byte code where there is no source."""
    try:
        content = inspect.getsource(target).encode()
    except (OSError, TypeError):
        codes = _codes(target) if inspect.isclass(target) else [target.__code__]
        content = b"".join(marshal.dumps(_stripped(code)) for code in codes)
    return hashlib.sha256(content).hexdigest()


def _codes(cls: type) -> list[CodeType]:
    return [
        member.__code__ for _, member in sorted(vars(cls).items()) if inspect.isfunction(member)
    ]


def _stripped(code: CodeType) -> CodeType:
    return code.replace(co_filename="", co_firstlineno=1)
