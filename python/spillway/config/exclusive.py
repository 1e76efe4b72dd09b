"""Objects that take one call at a time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from spillway._core.sim import Calls, Exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _HasCalls(Protocol):
    @property
    def _calls(self) -> Sequence[Exclusive]: ...


_Object = TypeVar("_Object", bound=_HasCalls)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def exclusive(
    method: Callable[Concatenate[_Object, _Arguments], _Result],
) -> Callable[Concatenate[_Object, _Arguments], _Result]:
    """A method that runs only while no other one of its object does, in any thread.

    Otherwise it raises UsageError and has no effect. The object has the attribute `_calls`: what
    the method enters.
    """

    @functools.wraps(method)
    def alone(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with Calls(method.__name__, self._calls):
            return method(self, *args, **kwargs)

    return alone
