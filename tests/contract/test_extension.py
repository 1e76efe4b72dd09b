"""The compiled extension is hardened: its own reader of ELF files looks at what is installed."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

import pytest

import spillway
from spillway import _core

_PT_DYNAMIC, _PT_GNU_RELRO = 2, 0x6474E552
_DT_STRTAB, _DT_SYMTAB, _DT_FLAGS, _DT_FLAGS_1, _DT_BIND_NOW = 5, 6, 30, 0x6FFFFFFB, 24
_DF_BIND_NOW, _DF_1_NOW = 8, 1


class _Elf:
    """The program headers, dynamic entries and undefined symbols of a 64-bit shared library."""

    def __init__(self, content: bytes) -> None:
        assert content[:6] == b"\x7fELF\x02\x01", "not a little-endian ELF file of 64 bits"
        table, size, count = (
            *struct.unpack_from("<Q", content, 32),
            *struct.unpack_from("<HH", content, 54),
        )
        # type, offset, address, size in the file
        self.segments = [
            struct.unpack_from("<I4xQQ8xQ", content, table + i * size) for i in range(count)
        ]
        self._content = content
        ((_, offset, _, length),) = [
            segment for segment in self.segments if segment[0] == _PT_DYNAMIC
        ]
        entries = [struct.unpack_from("<QQ", content, offset + i) for i in range(0, length, 16)]
        self.dynamic = dict(entries)

    def _position(self, address: int) -> int:
        for kind, offset, start, length in self.segments:
            if kind == 1 and start <= address < start + length:
                return offset + address - start
        raise AssertionError(f"address {address:#x} is in no segment")

    def imports(self) -> set[str]:
        """Names of undefined symbols. The string table follows the symbols."""
        symbols = self._position(self.dynamic[_DT_SYMTAB])
        names = self._position(self.dynamic[_DT_STRTAB])
        found = set()
        for at in range(symbols + 24, names, 24):
            name, section = struct.unpack_from("<I2xH", self._content, at)
            if section == 0:
                start = names + name
                end = self._content.index(b"\0", start)
                found.add(self._content[start:end].decode())
        return found


@pytest.fixture(scope="module")
def extension() -> _Elf:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the extension is hardened on Linux")
    if spillway.build_info["build_type"] != "release":
        pytest.skip("the extension is hardened in release builds")
    return _Elf(Path(_core.__file__).read_bytes())


def test_addresses_of_functions_are_bound_at_once_and_read_only(extension: _Elf) -> None:
    flags = extension.dynamic.get(_DT_FLAGS, 0) & _DF_BIND_NOW
    flags_1 = extension.dynamic.get(_DT_FLAGS_1, 0) & _DF_1_NOW
    assert flags or flags_1 or _DT_BIND_NOW in extension.dynamic
    assert any(kind == _PT_GNU_RELRO for kind, *_ in extension.segments)


def test_the_stack_of_what_values_from_outside_reach_is_guarded(extension: _Elf) -> None:
    assert "__stack_chk_fail" in extension.imports()
