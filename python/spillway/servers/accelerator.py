"""Datasheets of accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spillway.config.classes import config_error
from spillway.servers.data_files import entry, names

_FILE = "accelerators.yaml"
_GIB = 2**30
_DATASHEET = ("memory_gib", "bandwidth_tb_s", "dense_tflops", "link_gb_s")


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """An accelerator.

    Attributes
    ----------
    memory_gib : float
        What its driver offers to programs, in GiB.
    bandwidth_tb_s : float
        Of its memory, in 1e12 bytes/s.
    dense_tflops : mapping of str to float
        Arithmetic by type (bf16, fp8, int8, fp4), without sparsity, in 1e12 operations/s.
    link_gb_s : float
        To the other accelerators of its node, both directions together, in 1e9 bytes/s.

    """

    name: str
    source: str = "given"
    memory_gib: float
    bandwidth_tb_s: float
    dense_tflops: Mapping[str, float] = field(hash=False)
    link_gb_s: float

    @property
    def memory_bytes(self) -> float:
        """What its driver offers to programs."""
        return self.memory_gib * _GIB

    def flops(self, dtype: str) -> float:
        """Operations per s with weights of this type; a type that it lacks computes in bf16."""
        computed_in = {"nvfp4": "fp4", "mxfp4": "fp4"}.get(dtype, dtype)
        return 1e12 * self.dense_tflops.get(computed_in, self.dense_tflops["bf16"])

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Accelerator:
        """An accelerator from the numbers of its datasheet; ConfigError names what is missing."""
        known = {"name", "source", *_DATASHEET}
        for name in _DATASHEET:
            if name not in given:
                allowed = f"is missing; needed: {', '.join(sorted(_DATASHEET))}"
                raise config_error([(f"gpu.{name}", "", allowed)])
        for name, value in given.items():
            if name not in known:
                allowed = f"must be one of {', '.join(sorted(known))}"
                raise config_error([(f"gpu.{name}", repr(value), allowed)])
        flops = given["dense_tflops"]
        if not isinstance(flops, Mapping) or "bf16" not in flops:
            allowed = "must be a mapping with bf16, e.g. {bf16: 989, fp8: 1979}"
            raise config_error([("gpu.dense_tflops", repr(flops), allowed)])
        for name in ("memory_gib", "bandwidth_tb_s", "link_gb_s"):
            if not isinstance(given[name], int | float) or not given[name] > 0:
                raise config_error([(f"gpu.{name}", repr(given[name]), "must be > 0")])
        return cls(**{"name": "given", **given})


def accelerators() -> tuple[str, ...]:
    """The names of the accelerators in the catalog."""
    return names(_FILE)


def accelerator(name: str | Mapping[str, Any]) -> Accelerator:
    """The accelerator of a name or alias, or of the numbers of a datasheet.

    Raises ConfigError with the nearest name if there is none.
    """
    if isinstance(name, Mapping):
        return Accelerator.from_dict(name)
    also = "or give memory_gib, bandwidth_tb_s, dense_tflops and link_gb_s"
    key, found = entry(_FILE, name, "gpu", also=also)
    return Accelerator(name=key, **{field: found[field] for field in ("source", *_DATASHEET)})
