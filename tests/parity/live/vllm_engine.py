"""vLLM's own engine in virtual time: records what its scheduler does with given cases.

    python vllm_engine.py SOURCE CASES RECORDINGS

Runs in an environment that has what vLLM imports; SOURCE is the folder with its Python files. The
README of this folder says what runs unmodified and what is replaced.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import sys
import types
from pathlib import Path
from typing import Any

_EXTENSIONS = ("_C", "_moe_C", "_C_stable_libtorch", "_rocm_C", "cumem_allocator")
_TOKENS_PER_NAME = 1 << 16
_NUM_TRIES = 4
"""Fruitless calls at one instant before time moves on; the batch queue needs several."""


def load(source: Path) -> None:
    """Makes vLLM importable without its compiled extensions and without an accelerator."""
    sys.path.insert(0, str(source))
    os.environ.setdefault("PYTHONHASHSEED", "0")
    logging.disable(logging.WARNING)  # of settings that are unusual in service
    for name in _EXTENSIONS:
        sys.modules[f"vllm.{name}"] = types.ModuleType(f"vllm.{name}")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms.current_platform = CpuPlatform()


class Plain:
    """Plain values in place of a configuration; properties and methods are the class's own."""

    def __init__(self, kind: type | None = None, **values: Any) -> None:
        self.__dict__.update(values, _kind=kind)

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("_kind")
        if name.startswith("__") or kind is None or not hasattr(kind, name):
            raise AttributeError(name)
        found = getattr(kind, name)
        is_bound = isinstance(found, (property, types.FunctionType))
        return found.__get__(self) if is_bound else found


class NoGrammars:
    """The manager of structured output, of which no request has any."""

    def should_advance(self, *_: Any) -> bool:
        return False

    def accept_tokens(self, *_: Any) -> bool:
        return True

    def validate_tokens(self, _: Any, tokens: list[int]) -> list[int]:
        return tokens


class Pending:
    """A step that was submitted; its result ends when the step does."""

    def __init__(self, run: Run, end_ns: int, output: Any) -> None:
        self._run, self._end_ns, self._output = run, end_ns, output

    def done(self) -> bool:
        return self._end_ns <= self._run.now_ns

    def result(self) -> Any:
        self._run.now_ns = max(self._run.now_ns, self._end_ns)
        self._run.abort_due()
        return self._output


class Executor:
    """One device that runs steps in order, in place of a model."""

    def __init__(self, run: Run, case: dict[str, Any]) -> None:
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        self._output, self._drafts = ModelRunnerOutput, DraftTokenIds
        self._run, self._step_ns = run, case["step_ns"]
        self._num_drafts = case["engine"]["num_spec_tokens"]
        self._accept = {request["id"]: request.get("accept", [0]) for request in case["requests"]}
        self._num_prompt = {
            request["id"]: sum(n for _, n in request["prompt"]) for request in case["requests"]
        }
        self._num_made = dict.fromkeys(self._accept, 0)
        self._num_verified = dict.fromkeys(self._accept, 0)
        self._num_computed: dict[str, int] = {}
        self._free_ns = 0
        self._last: Pending | None = None
        self._scheduled: list[str] = []

    def execute_model(self, scheduled: Any, **_: Any) -> Pending:
        """Submits a step."""
        tokens = scheduled.num_scheduled_tokens
        step = self._run.step_of(scheduled)
        end_ns = self._run.now_ns
        if tokens:
            start_ns = max(self._run.now_ns, self._free_ns)
            total = sum(tokens.values())
            end_ns = start_ns + self._step_ns["constant"] + self._step_ns["per_token"] * total
            self._free_ns = end_ns
            step["start_ns"], step["end_ns"] = start_ns, end_ns
        sampled = [self._sample(name, scheduled, step) for name in tokens]
        output = self._output(
            req_ids=list(tokens),
            req_id_to_index={name: i for i, name in enumerate(tokens)},
            sampled_token_ids=sampled,
        )
        self._scheduled = list(tokens)
        self._last = Pending(self._run, end_ns, output)
        return self._last

    def sample_tokens(self, *_: Any, **__: Any) -> Any:
        """The result of the step that was submitted last."""
        return self._last

    def take_draft_token_ids(self) -> Any:
        """Drafts for each request of the last step."""
        drafts = [
            [
                self._run.token(f"out:{name}", self._num_made[name] + k)
                for k in range(self._num_drafts)
            ]
            for name in self._scheduled
        ]
        return self._drafts(self._scheduled, drafts)

    def _sample(self, name: str, scheduled: Any, step: dict[str, Any]) -> list[int]:
        """The tokens that a request gets in a step: none if it ends before the last known one."""
        entered = dict(step["admitted"])
        computed = entered.get(name, self._num_computed.get(name, 0))
        num_drafts = len(scheduled.scheduled_spec_decode_tokens.get(name, ()))
        known = self._num_prompt[name] + self._num_made[name]
        computed += scheduled.num_scheduled_tokens[name] - num_drafts
        num_sampled = 0
        if computed >= known:
            num_sampled = 1
            if num_drafts and name not in entered:
                accept = self._accept[name]
                verified = self._num_verified[name]
                num_sampled += min(num_drafts, accept[verified % len(accept)])
                self._num_verified[name] += 1
            computed = known + num_sampled - 1
        self._num_computed[name] = computed
        made = self._num_made[name]
        self._num_made[name] += num_sampled
        return [self._run.token(f"out:{name}", made + k) for k in range(num_sampled)]


class Run:
    """One case through one engine."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.now_ns = 0
        self._names: dict[str, int] = {}
        self._requests = {request["id"]: request for request in case["requests"]}
        self._progress: dict[str, dict[str, Any]] = {
            request["id"]: {"tokens_ns": []} for request in case["requests"]
        }
        self._steps: list[dict[str, Any]] = []
        self._open: dict[int, dict[str, Any]] = {}  # steps without a result, by their output's id
        self._preempted: list[str] = []
        self._added: set[str] = set()
        self._arrivals = sorted(self._requests.values(), key=lambda each: each["arrival_ns"])[::-1]
        self._aborts = sorted(
            (each for each in self._requests.values() if "abort_ns" in each),
            key=lambda each: each["abort_ns"],
        )
        self._core = core_of(case, Executor(self, case))
        self._watch(self._core.scheduler)

    # --- tokens -----------------------------------------------------------------------------------

    def token(self, name: str, index: int) -> int:
        """A token of a segment; those of different names differ."""
        return self._names.setdefault(name, len(self._names)) * _TOKENS_PER_NAME + index

    # --- the watched scheduler --------------------------------------------------------------------

    def _watch(self, scheduler: Any) -> None:
        """Writes down what goes into three methods of a scheduler and what comes out."""
        schedule, preempt = scheduler.schedule, scheduler._preempt_request
        update = scheduler.update_from_output

        def watched_schedule(*arguments: Any, **named: Any) -> Any:
            self._preempted = []
            scheduled = schedule(*arguments, **named)
            self._planned(scheduled)
            return scheduled

        def watched_preempt(request: Any, *arguments: Any, **named: Any) -> Any:
            self._preempted.append(request.request_id)
            return preempt(request, *arguments, **named)

        def watched_update(scheduled: Any, output: Any) -> Any:
            outputs = update(scheduled, output)
            self._updated(scheduled, outputs)
            return outputs

        scheduler.schedule = watched_schedule
        scheduler._preempt_request = watched_preempt
        scheduler.update_from_output = watched_update

    def step_of(self, scheduled: Any) -> dict[str, Any]:
        """What is written down of a step without a result."""
        return self._open[id(scheduled)]

    def _planned(self, scheduled: Any) -> None:
        cached = scheduled.scheduled_cached_reqs
        new = [(each.req_id, each.num_computed_tokens) for each in scheduled.scheduled_new_reqs]
        again = [
            (name, num_computed)
            for name, num_computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            if name in cached.resumed_req_ids
        ]
        scheduler = self._core.scheduler
        step: dict[str, Any] = {
            "planned_ns": self.now_ns,
            "scheduled": [list(pair) for pair in scheduled.num_scheduled_tokens.items()],
            "admitted": [list(pair) for pair in new + again],
            "preempted": list(self._preempted),
            "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "waiting": scheduler.get_request_counts()[1],
            "running": [request.request_id for request in scheduler.running],
            "finished": [],
        }
        if self.case["engine"]["num_spec_tokens"]:
            drafts = scheduled.scheduled_spec_decode_tokens
            step["drafts"] = {name: len(tokens) for name, tokens in drafts.items()}
        self._open[id(scheduled)] = step
        if step["scheduled"] or step["preempted"]:
            self._steps.append(step)

    def _updated(self, scheduled: Any, outputs: Any) -> None:
        step = self._open.pop(id(scheduled))
        for output in (each for client in outputs.values() for each in client.outputs):
            progress = self._progress[output.request_id]
            progress["tokens_ns"] += [self.now_ns] * len(output.new_token_ids)
            if output.finish_reason is not None:
                progress["finished_ns"] = self.now_ns
                step["finished"].append(output.request_id)

    # --- the clock --------------------------------------------------------------------------------

    def abort_due(self) -> None:
        """Withdraws requests whose clients have gone, one by one."""
        due = [
            each
            for each in self._aborts
            if each["abort_ns"] <= self.now_ns and each["id"] in self._added
        ]
        for request in due:
            self._aborts.remove(request)
            if request["id"] in self._core.scheduler.requests:
                self._core.abort_requests([request["id"]])
                self._progress[request["id"]]["aborted_ns"] = self.now_ns

    def _arrive(self) -> None:
        """Adds requests that are due, and withdraws those that have gone in the meantime."""
        while self._arrivals and self._arrivals[-1]["arrival_ns"] <= self.now_ns:
            request = self._arrivals.pop()
            self._add(request)
            self._added.add(request["id"])
        self.abort_due()

    def _add(self, request: dict[str, Any]) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        wanted = EngineCoreRequest(
            request_id=request["id"],
            prompt_token_ids=[
                self.token(name, k) for name, size in request["prompt"] for k in range(size)
            ],
            mm_features=None,
            sampling_params=SamplingParams(max_tokens=request["output"], ignore_eos=True),
            pooling_params=None,
            arrival_time=request["arrival_ns"] / 1e9,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            priority=request.get("priority", 0),
        )
        self._core.add_request(*self._core.preprocess_add_request(wanted))

    def _next_event_ns(self) -> int | None:
        times = [each["arrival_ns"] for each in self._arrivals[-1:]]
        times += [each["abort_ns"] for each in self._aborts if each["id"] in self._added]
        later = [time_ns for time_ns in times if time_ns > self.now_ns]
        return min(later, default=None)

    def recording(self, version: str) -> dict[str, Any]:
        """Runs the case to its end; what happened."""
        core, stuck, num_tries = self._core, False, 0
        while True:
            self._arrive()
            busy = core.scheduler.has_requests() or bool(core.batch_queue)
            if not busy or num_tries == _NUM_TRIES:
                next_ns = self._next_event_ns()
                if next_ns is None:
                    stuck = busy
                    break
                self.now_ns, num_tries = next_ns, 0
                continue
            before = self.now_ns, len(self._steps)
            _, executed = core.step_fn()
            core.post_step(executed)
            num_tries = num_tries + 1 if before == (self.now_ns, len(self._steps)) else 0
        return {
            "id": self.case["id"],
            "vllm": version,
            "stuck": stuck,
            "steps": self._steps,
            "requests": self._progress,
        }


def has_settings(case: dict[str, Any]) -> bool:
    """Whether the loaded version has all that a case sets."""
    from vllm.config import SchedulerConfig

    engine = case["engine"]
    names = set(engine.get("extra", {})) | ({"watermark"} if engine["watermark"] else set())
    return all(name in SchedulerConfig.__dataclass_fields__ for name in names)


def core_of(case: dict[str, Any], executor: Executor) -> Any:
    """An `EngineCore` with the settings of a case and one `FullAttentionSpec` group."""
    import queue
    from collections import deque

    import torch
    import vllm.config
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    wanted = case["engine"]
    fields = SchedulerConfig.__dataclass_fields__
    scheduling = SchedulerConfig(
        max_model_len=wanted["max_model_len"],
        is_encoder_decoder=False,
        max_num_seqs=wanted["max_num_seqs"],
        max_num_batched_tokens=wanted["max_num_batched_tokens"],
        long_prefill_token_threshold=wanted["long_prefill_token_threshold"],
        policy=wanted["policy"],
        enable_chunked_prefill=wanted["chunked_prefill"],
        async_scheduling=wanted["async_scheduling"],
        scheduler_reserve_full_isl=wanted["reserve_full_isl"],
        **({"watermark": wanted["watermark"]} if "watermark" in fields else {}),
        **wanted.get("extra", {}),
    )
    cache = CacheConfig(
        block_size=wanted["block_size"],
        enable_prefix_caching=wanted["prefix_caching"],
        prefix_caching_hash_algo="sha256",
    )
    cache.num_gpu_blocks = wanted["num_gpu_blocks"]
    spec = FullAttentionSpec(
        block_size=wanted["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    blocks = KVCacheConfig(
        num_blocks=wanted["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    model = Plain(
        ModelConfig,
        max_model_len=wanted["max_model_len"],
        runner_type="generate",
        is_encoder_decoder=False,
        is_multimodal_model=False,
        multimodal_config=None,
        supports_multimodal_inputs=False,
        uses_mrope=False,
        is_diffusion=False,
        enable_return_routed_experts=False,
        return_sampling_mask=False,
    )
    drafting = None
    if wanted["num_spec_tokens"]:
        drafting = Plain(
            SpeculativeConfig,
            method=wanted["spec_method"],
            num_speculative_tokens=wanted["num_spec_tokens"],
            draft_model_config=None,
        )
    others: dict[str, tuple[str, dict[str, Any]]] = {  # these classes are of some versions only
        "aux_output_config": ("AuxOutputConfig", {"enabled": False}),
        "ec_manager_config": ("EncoderCacheManagerConfig", {"encoder_cache_manager_cls": None}),
    }
    config = Plain(
        VllmConfig,
        scheduler_config=scheduling,
        cache_config=cache,
        model_config=model,
        speculative_config=drafting,
        parallel_config=Plain(
            data_parallel_size=1,
            data_parallel_index=0,
            data_parallel_rank=0,
            pipeline_parallel_size=1,
            tensor_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        observability_config=vllm.config.ObservabilityConfig(),
        lora_config=None,
        kv_events_config=None,
        kv_transfer_config=None,
        ec_transfer_config=None,
        diffusion_config=None,
        use_v2_model_runner=True,
        **{
            field: Plain(getattr(vllm.config, kind, None), **values)
            for field, (kind, values) in others.items()
        },
    )
    VllmConfig._set_max_num_scheduled_tokens(config)
    core = object.__new__(EngineCore)
    core.vllm_config = config
    core.log_stats = False
    core.model_executor = executor
    core.structured_output_manager = NoGrammars()
    core.scheduler = scheduling.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=blocks,
        structured_output_manager=core.structured_output_manager,
        block_size=wanted["block_size"],
        log_stats=False,
    )
    core.use_spec_decode = core.check_for_draft_tokens = drafting is not None
    core.mm_receiver_cache = None
    core.batch_queue_size = 2 if wanted["async_scheduling"] else 1
    core.batch_queue = deque(maxlen=2) if wanted["async_scheduling"] else None
    core.step_fn = core.step_with_batch_queue if wanted["async_scheduling"] else core.step
    core.is_ec_consumer, core.is_mm_encoder_only, core.is_pooling_model = True, False, False
    core.async_scheduling = wanted["async_scheduling"]
    core.aborts_queue = queue.Queue()
    core._weight_version = "default"
    core.request_block_hasher = None
    if wanted["prefix_caching"]:
        algorithm = get_hash_fn_by_name("sha256")
        kv_cache_utils.init_none_hash(algorithm)
        lookahead = getattr(config, "num_hash_lookahead_tokens", None)
        core.request_block_hasher = kv_cache_utils.get_request_block_hasher(
            wanted["block_size"], algorithm, *([] if lookahead is None else [lookahead])
        )
    return core


def main() -> int:
    """Records all cases that the version knows."""
    source, cases, recordings = map(Path, sys.argv[1:4])
    load(source)
    from importlib.metadata import PathDistribution

    metadata = next(source.glob("vllm-*.dist-info"))
    version = PathDistribution(metadata).version
    with gzip.open(cases, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    with gzip.open(recordings, "wt", encoding="utf-8") as stream:
        for case in filter(has_settings, found):
            line = Run(case).recording(version)
            stream.write(json.dumps(line, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
