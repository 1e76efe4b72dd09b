"""The metrics of a fleet under vLLM's names, an `engine` per instance, and Spillway's own.

Names, labels and buckets are those of vLLM 0.33, but for the buckets of `request_num_preemptions`,
which are a guess. Older names, as vLLM's deprecation notes date them: `gpu_cache_usage_perc` and
`gpu_prefix_cache_*` up to 0.10; `time_per_output_token_seconds` up to 0.11, the first version that
has `inter_token_latency_seconds`. `lora_requests_info` is missing, because there are no adapters.

The tokens of a step (`iteration_tokens_total`) are the output tokens that it emits, and the whole
prompts whose first tokens are among them, as `prompt_tokens` counts them. Several steps between two
looks at the fleet, which are 1 ms or more apart, are taken as equal.

Where servers hand prompts over, a request is counted by both, as by vLLM's servers, which know
nothing of each other: by the one that keeps its prompt as a request of one token, by the other one
from the instant at which it got the request, with the prompt from `external_kv_transfer`; it is
`deferred` until the prompt is there. Of vLLM's NIXL metrics there are the counts of prompts that
expired and of transfers that failed, but not times and bytes of transfers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spillway.live.histogram import Histogram
from spillway.live.transfers import RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from spillway._core.cluster import Simulation
    from spillway.live.fleet import Fleet, Served
    from spillway.live.transfers import Transfers
    from spillway.session import Event

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_TENANTS = 256
_LAST_GPU_NAMES = (0, 10)
_LAST_TIME_PER_TOKEN = (0, 11)
_FIRST_INTER_TOKEN = (0, 11)
_COUNTED = ("preemptions", "tokens_emitted", "kv_hits", "kv_lookups")
_REASONS = ("stop", "length", "abort", "error", "repetition")
_SLEEP_STATES = {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
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

    def __init__(
        self, simulation: Simulation, model: str, max_model_len: int, version: tuple[int, int]
    ) -> None:
        self._model = _escaped(model)
        self._version = version
        self._groups = [group for group in simulation.instances for _ in range(group.count)]
        lengths = _one_two_five(max_model_len)
        bounds = {
            "time_to_first_token_seconds": _TTFT_S,
            "inter_token_latency_seconds": _TPOT_S,
            "request_time_per_output_token_seconds": _TPOT_S,
            "e2e_request_latency_seconds": _E2E_S,
            "request_queue_time_seconds": _E2E_S,
            "request_inference_time_seconds": _E2E_S,
            "request_prefill_time_seconds": _E2E_S,
            "request_decode_time_seconds": _E2E_S,
            "request_prompt_tokens": lengths,
            "request_generation_tokens": lengths,
            "request_max_num_generation_tokens": lengths,
            "request_params_max_tokens": lengths,
            "request_prefill_kv_computed_tokens": lengths,
            "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
            "request_num_preemptions": _one_two_five(100),
            "iteration_tokens_total": (1.0, *(float(2**power) for power in range(3, 15))),
        }
        self._histograms: Mapping[str, list[Histogram]] = {
            name: [Histogram(ends) for _ in self._groups] for name, ends in bounds.items()
        }
        self._prompts_of_step: Counter[int] = Counter()  # in tokens
        self._steps_under_way: Counter[int] = Counter()
        self._before_restart: dict[int, Mapping[str, float]] = {}
        self._finished: Counter[tuple[int, str]] = Counter()
        self._rejected: Counter[tuple[int, str]] = Counter()
        self._prompt_tokens: Counter[int] = Counter()
        self._cached_tokens: Counter[int] = Counter()
        self._read_tokens: Counter[int] = Counter()  # of prompts that another instance computed
        self._kept_tokens: Counter[int] = Counter()  # output of requests whose prompts are kept
        self._refused: Counter[str] = Counter()
        self._by_tenant: Counter[tuple[str, str]] = Counter()
        self._tenants: set[str] = set()
        self.injected: Counter[str] = Counter()
        self.transfers: Transfers | None = None
        self.hands_over = any(group.role != "both" for group in self._groups)

    def note_first_token(self, served: Served, happened: Event) -> None:
        """Counts a prompt that has been computed."""
        engine, began_s = happened.instance, _began_s(served)
        self._prompt_tokens[engine] += served.input_tokens
        self._prompts_of_step[engine] += served.input_tokens
        if served.reads:
            self._read_tokens[engine] += served.input_tokens
        else:
            self._cached_tokens[engine] += happened.cached_tokens
        self._histograms["time_to_first_token_seconds"][engine].add(happened.time_s - began_s)

    def note_tokens(self, served: Served, count: int, interval_s: float) -> None:
        """Counts output tokens after the first, with the time that each took (s)."""
        self._histograms["inter_token_latency_seconds"][served.instance].add(interval_s, count)

    def note_steps(self, instance: int, begun: int, tokens: int) -> None:
        """Counts steps of an instance that have begun, and output tokens of those that ended."""
        ended = self._steps_under_way[instance] + begun
        if begun and (ended > 1 or not tokens):  # the last one is under way
            ended -= 1
        self._steps_under_way[instance] += begun - ended
        if ended:
            all_tokens = tokens + self._prompts_of_step.pop(instance, 0)
            self._histograms["iteration_tokens_total"][instance].add(all_tokens / ended, ended)

    def restart(self, instance: int, counted: Mapping[str, float]) -> None:
        """An instance has crashed: its process counts from 0 again; `counted`: so far."""
        if self.transfers is not None:
            self.transfers.restart(instance)
        self._before_restart[instance] = counted
        for histograms in self._histograms.values():
            histograms[instance] = Histogram(histograms[instance].bounds)
        for of_engine in (
            self._prompt_tokens,
            self._cached_tokens,
            self._read_tokens,
            self._kept_tokens,
            self._prompts_of_step,
            self._steps_under_way,
        ):
            of_engine.pop(instance, None)
        for counts in (self._finished, self._rejected):
            for key in [key for key in counts if key[0] == instance]:
                del counts[key]

    def note_kept(self, served: Served, happened: Event) -> None:
        """Counts a request whose prompt has been computed, and is kept: its answer is one token."""
        self._kept_tokens[happened.instance] += 1
        self._prompts_of_step[happened.instance] += 1
        self._note_completed(served, happened, 1)

    def note_end(self, served: Served) -> None:
        """Counts a request that has ended."""
        end = served.end
        assert end is not None
        if len(self._tenants) < MOST_TENANTS:
            self._tenants.add(served.tenant)
        tenant = served.tenant if served.tenant in self._tenants else "other"
        self._by_tenant[tenant, end.state] += 1
        engine = end.instance
        if end.state == "cancelled" and engine >= 0:
            self._finished[engine, "abort"] += 1
        elif end.state == "evicted" and engine >= 0:
            self._finished[engine, "abort"] += 1
            self._refused[end.reason or end.state] += 1
        elif end.state == "failed" and engine >= 0:
            self._finished[engine, "error"] += 1
            self._refused[end.reason or end.state] += 1
        elif end.state not in ("completed", "cancelled"):
            self._refused[end.reason or end.state] += 1
            self._rejected[engine, end.reason] += 1
        if end.state == "completed":
            self._note_completed(served, end, end.output_tokens)

    def _note_completed(self, served: Served, end: Event, output_tokens: int) -> None:
        engine, began_s = end.instance, _began_s(served)
        first_s = end.time_s if served.first_token_s is None else served.first_token_s
        # What a server that reads a prompt waits for is in this time, as the queue is.
        scheduled_s = first_s if served.reads else end.scheduled_s
        computed = 0 if served.reads else served.input_tokens - end.cached_tokens
        self._finished[engine, served.finish_reason] += 1
        values = {
            "e2e_request_latency_seconds": end.time_s - began_s,
            "request_queue_time_seconds": scheduled_s - began_s,
            "request_inference_time_seconds": end.time_s - scheduled_s,
            "request_prefill_time_seconds": first_s - scheduled_s,
            "request_decode_time_seconds": end.time_s - first_s,
            "request_time_per_output_token_seconds": 0.0,
            "request_prompt_tokens": served.input_tokens,
            "request_generation_tokens": output_tokens,
            "request_max_num_generation_tokens": output_tokens,
            "request_params_max_tokens": served.max_tokens,
            "request_prefill_kv_computed_tokens": computed,
            "request_params_n": 1,
            "request_num_preemptions": end.preemptions,
        }
        if output_tokens > 1:
            spread_s = (end.time_s - first_s) / (output_tokens - 1)
            values["request_time_per_output_token_seconds"] = spread_s
        for name, value in values.items():
            self._histograms[name][engine].add(value)

    def page(self, fleet: Fleet, at: int | None = None) -> str:
        """The page of the fleet, or that of one instance, which is engine 0 there."""
        state = fleet.observe()
        instances = {i: self._of_process(i, held) for i, held in state["instances"].items()}
        if at is not None:
            instances = {at: instances[at]}
        awaited = fleet.awaited()
        lines = [*self._of_engines(instances, at or 0, awaited), *self._of_clock(fleet)]
        if self.transfers is not None and (self.hands_over or self.transfers.results):
            lines += self._of_transfers(instances, at or 0, self.transfers)
        if at is None:
            lines += self._of_gateway(state)
        return "\n".join(lines) + "\n"

    def _of_process(self, instance: int, held: Mapping[str, float]) -> Mapping[str, float]:
        before = self._before_restart.get(instance)
        if before is None:
            return held
        return {**held, **{name: held[name] - before[name] for name in _COUNTED}}

    def _of_engines(
        self, instances: Mapping[int, Mapping[str, float]], first: int, awaited: Mapping[int, int]
    ) -> Iterator[str]:
        def labels(engine: int) -> str:
            return f'model_name="{self._model}",engine="{engine - first}"'

        def plain(name: str, kind: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
            suffix = "_total" if kind == "counter" else ""
            yield f"# TYPE vllm:{name}{suffix} {kind}"
            for text, value in values:
                yield f"vllm:{name}{suffix}{{{text}}} {float(value)!r}"

        def each(key: str) -> list[tuple[str, float]]:
            return [(labels(i), held[key]) for i, held in instances.items()]

        def in_tokens(key: str) -> list[tuple[str, float]]:
            return [
                (labels(i), held[key] * self._groups[i].block_size_tokens)
                for i, held in instances.items()
            ]

        def by(name: str, values: Mapping[int, Mapping[str, float]]) -> list[tuple[str, float]]:
            return [
                (f'{labels(i)},{name}="{label}"', value)
                for i, found in values.items()
                for label, value in found.items()
            ]

        prefixes = ("", "gpu_") if self._version <= _LAST_GPU_NAMES else ("",)
        yield from plain("num_requests_running", "gauge", each("running"))
        yield from plain("num_requests_waiting", "gauge", each("waiting"))
        # Nothing waits for an adapter, which vLLM calls deferred, too.
        waiting = {}
        for i, held in instances.items():
            deferred = min(awaited[i], held["waiting"])
            waiting[i] = {"capacity": held["waiting"] - deferred, "deferred": deferred}
        yield from plain("num_requests_waiting_by_reason", "gauge", by("reason", waiting))
        sleep = by("sleep_state", dict.fromkeys(instances, _SLEEP_STATES))
        yield from plain("engine_sleep_state", "gauge", sleep)
        for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc")[: len(prefixes)]:
            yield from plain(name, "gauge", each("kv_utilization"))
        for prefix in prefixes:
            yield from plain(f"{prefix}prefix_cache_hits", "counter", in_tokens("kv_hits"))
            yield from plain(f"{prefix}prefix_cache_queries", "counter", in_tokens("kv_lookups"))
        yield from plain("num_preemptions", "counter", each("preemptions"))
        outputs = [
            (labels(i), held["tokens_emitted"] + self._kept_tokens[i])
            for i, held in instances.items()
        ]
        yield from plain("generation_tokens", "counter", outputs)
        prompts = [(labels(i), self._prompt_tokens[i]) for i in instances]
        yield from plain("prompt_tokens", "counter", prompts)
        cached = [(labels(i), self._cached_tokens[i]) for i in instances]
        yield from plain("prompt_tokens_cached", "counter", cached)
        sources = {i: dict(zip(_SOURCES, self._sources(i), strict=True)) for i in instances}
        yield from plain("prompt_tokens_by_source", "counter", by("source", sources))
        ended = {i: {reason: self._finished[i, reason] for reason in _REASONS} for i in instances}
        yield from plain("request_success", "counter", by("finished_reason", ended))
        caches = []
        for i in instances:
            blocks = f'num_gpu_blocks="{self._groups[i].num_kv_blocks}"'
            size = f'block_size="{self._groups[i].block_size_tokens}"'
            caches.append((f"{labels(i)},{size},{blocks}", 1.0))
        yield from plain("cache_config_info", "gauge", caches)
        rejected = {
            i: {name: self._rejected[i, reason] for reason, name in _REJECTIONS.items()}
            for i in instances
        }
        yield from plain("admission_rejections", "counter", by("reason", rejected))
        for name, histograms in self._histograms.items():
            for shown in self._names_of(name):
                yield f"# TYPE vllm:{shown} histogram"
                for i in instances:
                    yield from histograms[i].lines(f"vllm:{shown}", labels(i))

    def _sources(self, instance: int) -> tuple[int, int, int]:
        cached, read = self._cached_tokens[instance], self._read_tokens[instance]
        return self._prompt_tokens[instance] - cached - read, cached, read

    def _names_of(self, histogram: str) -> Iterator[str]:
        if histogram != "inter_token_latency_seconds" or self._version >= _FIRST_INTER_TOKEN:
            yield histogram
        if histogram == "inter_token_latency_seconds" and self._version <= _LAST_TIME_PER_TOKEN:
            yield "time_per_output_token_seconds"

    def _of_transfers(
        self, instances: Iterable[int], first: int, transfers: Transfers
    ) -> Iterator[str]:
        for name, result in (
            ("nixl_num_kv_expired_reqs", "expired"),
            ("nixl_num_failed_transfers", "unknown_engine"),
        ):
            yield f"# TYPE vllm:{name} counter"
            for i in instances:
                labels = f'model_name="{self._model}",engine="{i - first}"'
                yield f"vllm:{name}_total{{{labels}}} {float(transfers.of_process(i, result))!r}"
        yield "# TYPE spillway_kv_transfers counter"
        for i in instances:
            for result in RESULTS:
                labels = f'model_name="{self._model}",engine="{i - first}",result="{result}"'
                yield f"spillway_kv_transfers_total{{{labels}}} {transfers.results[i, result]}"

    def _of_clock(self, fleet: Fleet) -> Iterator[str]:
        model = f'model_name="{self._model}"'
        yield "# TYPE spillway_late_total counter"
        yield f"spillway_late_total{{{model}}} {fleet.times_late}"
        yield "# TYPE spillway_lateness_seconds histogram"
        yield from fleet.lateness.lines("spillway_lateness_seconds", model)
        yield "# TYPE spillway_injected_errors_total counter"
        for error, count in sorted(self.injected.items()):
            yield f'spillway_injected_errors_total{{{model},error="{error}"}} {count}'

    def _of_gateway(self, state: Mapping[str, float]) -> Iterator[str]:
        model = f'model_name="{self._model}"'
        yield "# TYPE spillway_in_flight gauge"
        yield f"spillway_in_flight{{{model}}} {state['in_flight']}"
        yield "# TYPE spillway_queue_length gauge"
        queued = sum(tenant["queued"] for tenant in state["tenants"].values())  # type: ignore[attr-defined]
        yield f"spillway_queue_length{{{model}}} {queued}"
        yield "# TYPE spillway_refused_total counter"
        for reason, count in sorted(self._refused.items()):
            yield f'spillway_refused_total{{{model},reason="{reason}"}} {count}'
        yield "# TYPE spillway_requests_total counter"
        for (tenant, outcome), count in sorted(self._by_tenant.items()):
            labels = f'{model},tenant="{_escaped(tenant)}",outcome="{outcome}"'
            yield f"spillway_requests_total{{{labels}}} {count}"


def _began_s(served: Served) -> float:
    """When its server got it (s)."""
    return served.arrived_s if served.dispatched_s is None else served.dispatched_s


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
