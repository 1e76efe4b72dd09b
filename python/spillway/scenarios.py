"""Named workloads: who asks how much and when, as published experiments did.

`get("noisy-neighbor").apply(simulation)` puts one before a gateway and a fleet of your own;
`names()` lists them, `table()` explains them.

Unless a scenario names another source it is a file of `bench/scenarios/` in
https://github.com/Nicolas-Richard/vllm-on-eks (commits 2dca487 and 0c78403): three tenants A, B and
C with weights 2:1:1 in front of two L4 GPUs, Poisson arrivals in an open loop, prompts of 512 and
answers of 128 tokens. There `vllm bench serve` sends each client's prompts from its start on,
however long that takes: the duration in the file is only informative (`bench/run_scenario.sh`). So
a client here ends with its number of requests. vLLM also stretches the gaps so that the last one
ends exactly at number / rate; here they stay as drawn, and n requests take sqrt(n) / rate more or
less.

That gateway knows no classes. Here the tenants are of three, so that policies can tell them apart:
A pays and is `critical`, C is the `standard` background, B is the free tier and `sheddable`. Each
class is promised a time to first token of 2 s, the target of that gateway's controller.
"""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING, Any

from spillway._core.cluster import Simulation
from spillway._core.workload import Client, Fixed, SloClass, Synthetic, Tenant
from spillway.config.classes import config_error
from spillway.config.messages import checked_simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CLASS_OF",
    "SLO_CLASSES",
    "TARGET_TTFT_S",
    "TENANTS",
    "Scenario",
    "get",
    "names",
    "table",
]


def __dir__() -> list[str]:
    return __all__


TARGET_TTFT_S = 2.0
TENANTS = (Tenant(name="A", weight=2), Tenant(name="B", weight=1), Tenant(name="C", weight=1))
SLO_CLASSES = (
    SloClass(name="critical", priority=4, target_ttft_s=TARGET_TTFT_S),
    SloClass(name="standard", priority=3, target_ttft_s=TARGET_TTFT_S),
    SloClass(name="sheddable", priority=-2, target_ttft_s=TARGET_TTFT_S),
)
CLASS_OF = {"A": "critical", "B": "sheddable", "C": "standard"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """A named workload with the tenants and classes that take part in it.

    `duration_s` is how long its requests keep coming by the source, more or less; a run goes on
    until the last of them has left.
    """

    name: str
    doc: str
    duration_s: float
    workload: Synthetic
    tenants: tuple[Tenant, ...] = TENANTS
    slo_classes: tuple[SloClass, ...] = SLO_CLASSES

    def apply(self, simulation: Simulation | None = None) -> Simulation:
        """`simulation` (default: all defaults) with this workload, these tenants and classes."""
        return checked_simulation(simulation or Simulation()).replace(
            workload=self.workload, tenants=self.tenants, slo_classes=self.slo_classes
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings that `apply` replaces, as they stand in a configuration file."""
        return {
            "workload": self.workload.to_dict(),
            "tenants": [one.to_dict() for one in self.tenants],
            "slo_classes": [one.to_dict() for one in self.slo_classes],
        }


def names() -> tuple[str, ...]:
    """The names of all scenarios."""
    return tuple(_SCENARIOS)


def get(name: str) -> Scenario:
    """The scenario of a name; ConfigError with the nearest one if there is none."""
    if name not in _SCENARIOS:
        import difflib

        near = difflib.get_close_matches(str(name), _SCENARIOS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(_SCENARIOS)}"
        raise config_error([("scenario", repr(name), f"is no known scenario; {hint}")])
    return _SCENARIOS[name]


def table() -> str:
    """All scenarios in words: what each is for, and its clients."""
    return "\n\n".join(_in_words(one) for one in _SCENARIOS.values())


def _in_words(scenario: Scenario) -> str:
    lines = [f"{scenario.name} ({scenario.duration_s:g} s)"]
    lines += textwrap.wrap(
        scenario.doc, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    for one in scenario.workload.clients:
        until = (
            f"for {one.duration_s:g} s"
            if one.num_requests is None
            else f"until {one.num_requests:,} requests"
        )
        lines.append(
            f"    {one.tenant}: {one.requests_per_s:g} requests/s from {one.start_s:g} s {until}"
        )
    return "\n".join(lines)


def _client(
    tenant: str,
    requests_per_s: float,
    start_s: float,
    num_requests: int | None = None,
    *,
    duration_s: float | None = None,
    input_tokens: int = 512,
    name: str = "",
) -> Client:
    return Client(
        name=name or tenant,
        tenant=tenant,
        slo_class=CLASS_OF[tenant],
        requests_per_s=requests_per_s,
        start_s=start_s,
        num_requests=num_requests,
        duration_s=duration_s,
        input_tokens=Fixed(tokens=input_tokens),
        output_tokens=Fixed(tokens=128),
    )


def _phases(
    requests_per_s: Sequence[float], duration_s: float, input_tokens: int
) -> tuple[Client, ...]:
    """Tenant A at one rate after the other; each phase sends rate x length prompts."""
    starts_s = (0, 30, 210, 240, 540, 570, 750, 780, 810)
    ends_s = (*starts_s[1:], duration_s)
    return tuple(
        _client(
            "A",
            rate,
            start_s,
            round(rate * (end_s - start_s)),
            input_tokens=input_tokens,
            name=f"A from {start_s} s",
        )
        for rate, start_s, end_s in zip(requests_per_s, starts_s, ends_s, strict=True)
    )


def _all() -> tuple[Scenario, ...]:
    def scenario(name: str, duration_s: float, doc: str, *clients: Client) -> Scenario:
        return Scenario(
            name=name, doc=doc, duration_s=duration_s, workload=Synthetic(clients=clients)
        )

    return (
        scenario(
            "baseline",
            60,
            "A and C alone, far below what the fleet can do.",
            _client("A", 2, 0, 120),
            _client("C", 1, 0, 60),
        ),
        scenario(
            "noisy-neighbor",
            360,
            "B bursts for a minute between two steady tenants.",
            _client("A", 5, 0, 1800),
            _client("B", 30, 120, 1800),
            _client("C", 3, 0, 1080),
        ),
        scenario(
            "noisy-neighbor-small",
            300,
            "A shorter burst of B between two tenants that ask little.",
            _client("A", 1.5, 0, 450),
            _client("B", 30, 90, 450),
            _client("C", 0.5, 0, 150),
        ),
        scenario(
            "work-conservation",
            180,
            "B has the fleet to itself, then shares it with A for a minute.",
            _client("B", 7.5, 0, 1350),
            _client("A", 7.5, 60, 450),
        ),
        scenario(
            "work-conservation-priority",
            240,
            "B alone, then A with twice its weight for a minute, then B again. The sweeps over "
            "budgets in the blog's post of 2026-05-04 have this shape.",
            _client("B", 6, 0, 1440),
            _client("A", 4, 60, 240),
        ),
        scenario(
            "aimd-baseline",
            180,
            "A trickle, under which the controller is expected to hold.",
            _client("A", 0.5, 0, 90),
        ),
        scenario(
            "aimd-sustained-pressure",
            300,
            "B overloads the fleet for a minute and a half, while A trickles on: the limit must "
            "come down and climb back.",
            _client("A", 0.5, 0, 150),
            _client("B", 8, 60, 720),
        ),
        scenario(
            "sustained-15min",
            900,
            "Two steady tenants. The file gives C 1,800 prompts at 4 requests/s and says 900 s: C "
            "falls silent after 450 s.",
            _client("A", 5, 0, 4500),
            _client("C", 4, 0, 1800),
        ),
        scenario(
            "tenant-a-20rps",
            900,
            "One tenant asks for several times what two L4 GPUs can do.",
            _client("A", 20, 0, 18_000),
        ),
        scenario(
            "autoscale-demo",
            1410,
            "One tenant's rate climbs in steps, peaks and falls again.",
            *_phases((2, 6, 9, 12, 14, 16, 11, 8, 6), 1410, 512),
        ),
        scenario(
            "autoscale-demo-128",
            1410,
            "The same with prompts of 128 tokens and about twice the rates.",
            *_phases((5, 12, 18, 24, 28, 32, 22, 16, 12), 1410, 128),
        ),
        scenario(
            "static-caps",
            120,
            "B bursts between A and C, whom caps per tenant of 64, 8 and 64 protect. Source: "
            "https://nicolas-richard.github.io, post of 2026-05-02, which says 30 s of burst but "
            "counts 450 requests, that is 15 s; they are what this holds. When the burst began it "
            "does not say: here after a third, as in noisy-neighbor.",
            _client("A", 2, 0, 240),
            _client("B", 30, 40, 450),
            _client("C", 1, 0, 120),
        ),
        scenario(
            "toy-plant",
            300,
            "B from the start, A from 60 s on, until 300 s: the load under which that gateway's "
            "scheduler and controller were run on a virtual clock before a plant whose service "
            "time was interpolated from the blog's figures.",
            _client("B", 6, 0, duration_s=300),
            _client("A", 4, 60, duration_s=240),
        ),
    )


_SCENARIOS = {one.name: one for one in _all()}
