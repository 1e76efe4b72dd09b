"""The administrative interface: a port of its own, where each request states a token."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

from spillway._core.sim import UsageError
from spillway.live import errors, wire
from spillway.live.wire import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.live.errors import Errors
    from spillway.live.fleet import Fleet


class Admin:
    """What the port answers: settings and errors change, instances fail, the state is shown."""

    def __init__(self, token: str, fleet: Fleet, injected: Errors, instances: int | None) -> None:
        self._token = token.encode()
        self._fleet = fleet
        self._errors = injected
        self._instances = instances
        self._routes: Mapping[tuple[str, str], Callable[[bytes], Any]] = {
            ("GET", "/admin/state"): self._state,
            ("GET", "/admin/errors"): lambda _: self._errors.state(),
            ("POST", "/admin/errors"): self._set_errors,
            ("POST", "/admin/set"): self._set,
            ("POST", "/admin/faults"): self._fail,
        }

    def check(self, headers: Mapping[bytes, bytes], method: str, path: str) -> None:
        """Raises RefusedError unless the token is right and the path is known."""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            raise RefusedError(401, "Unauthorized")
        if (method, path) not in self._routes:
            is_known = any(path == known for _, known in self._routes)
            raise RefusedError(
                405 if is_known else 404, "Method Not Allowed" if is_known else "Not Found"
            )

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The answer, as JSON takes it. Raises RefusedError and ConfigError."""
        return self._routes[method, path](body)

    def _state(self, _body: bytes) -> dict[str, Any]:
        return {
            "fleet": self._fleet.observe(),
            "speed": self._fleet.speed,
            "late_s": self._fleet.late_s,
            "times_late": self._fleet.times_late,
            "errors": self._errors.state(),
        }

    def _set_errors(self, body: bytes) -> list[dict[str, Any]]:
        self._errors.rules = errors.rules_of(wire.parsed(body), instances=self._instances)
        return self._errors.state()

    def _fail(self, body: bytes) -> dict[str, Any]:
        faults = wire.parsed(body)
        if not isinstance(faults, list) or not faults:
            raise RefusedError(400, "the body must be a JSON list of faults, not empty")
        try:
            return {"at_s": self._fleet.fail(faults), "faults": faults}
        except UsageError as error:
            raise RefusedError(409, str(error)) from None

    def _set(self, body: bytes) -> dict[str, Any]:
        values = wire.document(body)
        try:
            return {"at_s": self._fleet.set(values), "set": values}
        except UsageError as error:
            raise RefusedError(409, str(error)) from None
