"""The metrics of a fleet under vLLM's names, an `engine` per instance, and Spillway's own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spillway.live.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spillway._core.cluster import Simulation
    from spillway.live.fleet import Fleet, Served

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_TENANTS = 256
_REJECTIONS = {"queued_requests": "max_num_queued_reqs", "queued_tokens": "max_num_queued_tokens"}

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
           10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_TPOT_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
           20.0, 40.0, 80.0)  # fmt: skip
_E2E_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
          240.0, 480.0, 960.0, 1920.0, 7680.0)  # fmt: skip


def _one_two_five(most: int) -> tuple[float, ...]:
    bounds = [
        float(digit * 10**power)
        for power in range(8)
        for digit in (1, 2, 5)
        if digit * 10**power <= most
    ]
    return tuple(bounds)


class Metrics:
    """What `/metrics` shows."""

    def __init__(self, simulation: Simulation, model: str, max_model_len: int) -> None:
        self._model = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._groups = [group for group in simulation.instances for _ in range(group.count)]
        lengths = _one_two_five(max_model_len)
        self._histograms: Mapping[str, Sequence[Histogram]] = {
            name: [Histogram(bounds) for _ in self._groups]
            for name, bounds in (
                ("time_to_first_token_seconds", _TTFT_S),
                ("request_time_per_output_token_seconds", _TPOT_S),
                ("e2e_request_latency_seconds", _E2E_S),
                ("request_decode_time_seconds", _E2E_S),
                ("request_prompt_tokens", lengths),
                ("request_generation_tokens", lengths),
                ("request_params_max_tokens", lengths),
            )
        }
        self._finished: Counter[tuple[int, str]] = Counter()
        self._rejected: Counter[tuple[int, str]] = Counter()
        self._prompt_tokens: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._by_tenant: Counter[tuple[str, str]] = Counter()
        self._tenants: set[str] = set()

    def note(self, served: Served) -> None:
        """Counts a request that has ended."""
        end = served.end
        assert end is not None
        if len(self._tenants) < MOST_TENANTS:
            self._tenants.add(served.tenant)
        tenant = served.tenant if served.tenant in self._tenants else "other"
        self._by_tenant[tenant, end.state] += 1
        engine = end.instance
        if end.state != "completed" or engine < 0:
            if end.state == "cancelled":
                self._finished[max(engine, 0), "abort"] += 1
            else:
                self._refused[end.reason or end.state] += 1
                self._rejected[engine, end.reason] += 1
            return
        began_s = served.arrived_s if served.dispatched_s is None else served.dispatched_s
        first_s = end.time_s if served.first_token_s is None else served.first_token_s
        self._finished[engine, served.finish_reason] += 1
        self._prompt_tokens[engine] += served.input_tokens
        values = {
            "time_to_first_token_seconds": first_s - began_s,
            "e2e_request_latency_seconds": end.time_s - began_s,
            "request_decode_time_seconds": end.time_s - first_s,
            "request_prompt_tokens": served.input_tokens,
            "request_generation_tokens": end.output_tokens,
            "request_params_max_tokens": served.max_tokens,
        }
        if end.output_tokens > 1:
            spread_s = (end.time_s - first_s) / (end.output_tokens - 1)
            values["request_time_per_output_token_seconds"] = spread_s
        for name, value in values.items():
            self._histograms[name][engine].add(value)

    def page(self, fleet: Fleet, at: int | None = None) -> str:
        """The page of the fleet, or that of one instance, which is engine 0 there."""
        state = fleet.observe()
        instances = state["instances"]
        if at is not None:
            instances = {at: instances[at]}
        lines = [*self._of_engines(instances, at or 0), *self._of_clock(fleet)]
        if at is None:
            lines += self._of_gateway(state)
        return "\n".join(lines) + "\n"

    def _of_engines(
        self, instances: Mapping[int, Mapping[str, float]], first: int
    ) -> Iterator[str]:
        def labels(engine: int) -> str:
            return f'model_name="{self._model}",engine="{engine - first}"'

        def plain(name: str, kind: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
            yield f"# TYPE vllm:{name} {kind}"
            suffix = "_total" if kind == "counter" else ""
            for text, value in values:
                yield f"vllm:{name}{suffix}{{{text}}} {float(value)!r}"

        def each(key: str) -> list[tuple[str, float]]:
            return [(labels(i), held[key]) for i, held in instances.items()]

        def in_tokens(key: str) -> list[tuple[str, float]]:
            return [
                (labels(i), held[key] * self._groups[i].block_size_tokens)
                for i, held in instances.items()
            ]

        yield from plain("num_requests_running", "gauge", each("running"))
        yield from plain("num_requests_waiting", "gauge", each("waiting"))
        yield from plain("kv_cache_usage_perc", "gauge", each("kv_utilization"))
        yield from plain("num_preemptions", "counter", each("preemptions"))
        yield from plain("generation_tokens", "counter", each("tokens_emitted"))
        yield from plain("prefix_cache_hits", "counter", in_tokens("kv_hits"))
        yield from plain("prefix_cache_queries", "counter", in_tokens("kv_lookups"))
        prompts = [(labels(i), self._prompt_tokens[i]) for i in instances]
        yield from plain("prompt_tokens", "counter", prompts)
        ended = [
            (f'{labels(i)},finished_reason="{reason}"', self._finished[i, reason])
            for i in instances
            for reason in ("stop", "length", "abort")
        ]
        yield from plain("request_success", "counter", ended)
        caches = []
        for i in instances:
            blocks = f'num_gpu_blocks="{self._groups[i].num_kv_blocks}"'
            size = f'block_size="{self._groups[i].block_size_tokens}"'
            caches.append((f"{labels(i)},{size},{blocks}", 1.0))
        yield from plain("cache_config_info", "gauge", caches)
        rejected = [
            (f'{labels(i)},reason="{name}"', self._rejected[i, reason])
            for i in instances
            for reason, name in _REJECTIONS.items()
        ]
        yield from plain("admission_rejections", "counter", rejected)
        for name, histograms in self._histograms.items():
            yield f"# TYPE vllm:{name} histogram"
            for i in instances:
                yield from histograms[i].lines(f"vllm:{name}", labels(i))

    def _of_clock(self, fleet: Fleet) -> Iterator[str]:
        model = f'model_name="{self._model}"'
        yield "# TYPE spillway_late counter"
        yield f"spillway_late_total{{{model}}} {fleet.times_late}"
        yield "# TYPE spillway_lateness_seconds histogram"
        yield from fleet.lateness.lines("spillway_lateness_seconds", model)

    def _of_gateway(self, state: Mapping[str, float]) -> Iterator[str]:
        model = f'model_name="{self._model}"'
        yield "# TYPE spillway_in_flight gauge"
        yield f"spillway_in_flight{{{model}}} {state['in_flight']}"
        yield "# TYPE spillway_queue_length gauge"
        queued = sum(tenant["queued"] for tenant in state["tenants"].values())  # type: ignore[attr-defined]
        yield f"spillway_queue_length{{{model}}} {queued}"
        yield "# TYPE spillway_refused counter"
        for reason, count in sorted(self._refused.items()):
            yield f'spillway_refused_total{{{model},reason="{reason}"}} {count}'
        yield "# TYPE spillway_requests counter"
        for (tenant, outcome), count in sorted(self._by_tenant.items()):
            name = tenant.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            yield (
                f'spillway_requests_total{{{model},tenant="{name}",outcome="{outcome}"}} {count}'
            )
