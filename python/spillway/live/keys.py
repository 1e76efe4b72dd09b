"""Which tenant sends an API key: a file of salted hashes, never of keys."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError
from spillway.config import yaml
from spillway.config.classes import config_error
from spillway.config.filesystem import read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_SALT = re.compile(r"[0-9a-f]{32,128}")
_HASH = re.compile(r"[0-9a-f]{64}")
_LONGEST = 4096


class TenantKeys:
    """Tenants by the hashes of their keys: SHA-256 of the salt, as it is written, and the key."""

    def __init__(self, salt: str = "", tenants: Mapping[str, str] | None = None) -> None:
        self._salt = salt.encode()
        self._tenants = dict(tenants or {})  # by hash

    def tenant(self, authorization: bytes) -> str | None:
        """The tenant of a header `authorization: Bearer KEY`; None without a known key."""
        if not self._tenants:
            return None
        scheme, _, key = authorization.strip().partition(b" ")
        if scheme.lower() != b"bearer" or len(key) > _LONGEST:
            return None
        return self._tenants.get(hashlib.sha256(self._salt + key.strip()).hexdigest())


def read(path: str | Path, tenants: Collection[str]) -> TenantKeys:
    """The keys of a file, whose tenants must be among these.

    Raises ConfigError, which shows nothing of the file but names of tenants: it may hold keys by
    mistake.
    """
    try:
        given = yaml.parse(read_text(Path(path)), "", is_json=str(path).endswith(".json"))
    except ConfigError:
        given = None
    if (
        not isinstance(given, dict)
        or set(given) != {"salt", "tenants"}
        or not isinstance(given["tenants"], dict)
    ):
        allowed = "must be a YAML or JSON file with `salt` and `tenants`, a mapping, alone"
        raise config_error([("tenant_keys", str(path), allowed)])
    wrong = []
    if not (isinstance(given["salt"], str) and _SALT.fullmatch(given["salt"])):
        wrong.append(("tenant_keys.salt", "", "must be 32 to 128 hexadecimal digits, in quotes"))
    found: dict[str, str] = {}
    for tenant, hashes in given["tenants"].items():
        name = f"tenant_keys.tenants.{tenant!s:.40}"
        if tenant not in tenants:
            allowed = f"must be a tenant of the simulation: {', '.join(sorted(tenants))}"
            wrong.append((name, "", allowed))
        wrong += _added(found, tenant, hashes, name)
    if wrong:
        raise config_error(wrong)
    return TenantKeys(given["salt"], found)


def _added(
    found: dict[str, str], tenant: str, hashes: Any, name: str
) -> list[tuple[str, str, str]]:
    if not isinstance(hashes, list):
        return [(name, "", "must be a list of hashes")]
    wrong = []
    for i, each in enumerate(hashes):
        if not (isinstance(each, str) and _HASH.fullmatch(each)):
            allowed = "must be the SHA-256 of salt and key: 64 hexadecimal digits, in quotes"
            wrong.append((f"{name}[{i}]", "", allowed))
        elif found.setdefault(each, tenant) != tenant:
            wrong.append((f"{name}[{i}]", "", f"is a key of {found[each]}, too"))
    return wrong
