from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.specimens import Specimen

from spillway import router

if TYPE_CHECKING:
    from support.random_simulations import Drawing

ALWAYS = Specimen(router.AlwaysRemote)
NEVER = Specimen(router.NeverRemote)
UNCACHED_TOKENS = Specimen(router.UncachedTokens, weight=2)


def readable(settings: dict[str, Any], _drawing: Drawing) -> None:
    if settings["prefill_busy_threshold"] is None:
        settings["rule"] = "isl_bounding"


CONDITIONAL = Specimen(
    router.Conditional,
    examples=(router.Conditional(rule="isl_or_load", prefill_busy_threshold=0.5),),
    weight=2,
    together=readable,
)
