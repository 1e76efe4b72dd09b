"""C functions as policies get them: their addresses."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from spillway import _core
from spillway.config.classes import config_error


def check_compiled(name: str, version: str, abi: int) -> None:
    """Refuses what cannot state a compiled policy."""
    wrong = [
        (key, repr(value), "must be a text that is not empty")
        for key, value in (("name", name), ("version", version))
        if not (isinstance(value, str) and value)
    ]
    if abi != _core.policies.policy_abi:
        wrong.append(("abi", repr(abi), f"must be {_core.policies.policy_abi}"))
    if wrong:
        raise config_error(wrong)


def address_of(what: str, function: Any, arguments: int) -> int:
    """The address of a C function with this many arguments."""
    address = found = None
    if isinstance(function, int) and not isinstance(function, bool):
        address = function
    elif isinstance(getattr(function, "address", None), int):  # numba.cfunc
        address = function.address
        found = len(signature.args) if (signature := getattr(function, "_sig", None)) else None
    elif isinstance(function, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        address = ctypes.cast(function, ctypes.c_void_p).value
        types = function.argtypes or getattr(function, "_argtypes_", None)
        found = len(types) if types else None
    elif type(function).__module__ == "_cffi_backend":
        ffi = importlib.import_module("cffi").FFI()
        type_ = ffi.typeof(function)
        if type_.kind == "function":
            address, found = int(ffi.cast("uintptr_t", function)), len(type_.args)
    if address is None or address <= 0:
        allowed = "must be a C function: an address, or one of ctypes, cffi or numba.cfunc"
        raise config_error([(what, repr(function), allowed)])
    if found not in (None, arguments):
        allowed = f"must take {arguments} arguments, see spillway_policy.h"
        raise config_error([(what, f"a function of {found} arguments", allowed)])
    return address
