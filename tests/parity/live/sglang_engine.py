"""SGLang's own scheduler in virtual time: records what it does with given cases.

    python sglang_engine.py SOURCE CASES RECORDINGS

Runs in an environment that has what SGLang imports; SOURCE is the folder with the files of its
wheel. The README of this folder says what runs unmodified and what is replaced.
"""

from __future__ import annotations

import gzip
import json
import logging
import sys
import warnings
from array import array
from pathlib import Path
from typing import Any

_TOKENS_PER_NAME = 1 << 16
_VOCABULARY = 1 << 40


def load(source: Path) -> None:
    """Makes SGLang importable without an accelerator."""
    sys.path.insert(0, str(source))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # of kernels that a processor has not
    import torch

    torch.set_num_threads(1)


class Silent:
    """A part that only reports: whatever it is asked to do, it does nothing."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Unset:
    """Settings of a model, all of them `None` that are not given."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Run:
    """One case through one scheduler."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.now_ns = 0
        self.stuck = False
        self._free_ns = 0
        self._names: dict[str, int] = {}
        self._num_made: dict[str, int] = {}
        self._inside: set[str] = set()  # of requests that hold memory
        self._added: set[str] = set()
        self._aborted: set[str] = set()
        self._out: dict[str, list[str]] = {"retracted": [], "preempted": []}
        self._steps: list[dict[str, Any]] = []
        self._ending: dict[str, Any] = {}
        self._progress: dict[str, dict[str, Any]] = {
            request["id"]: {"tokens_ns": []} for request in case["requests"]
        }
        self._arrivals = sorted(case["requests"], key=lambda each: each["arrival_ns"])[::-1]
        self._aborts = sorted(
            (each for each in case["requests"] if "abort_ns" in each),
            key=lambda each: each["abort_ns"],
        )
        self.scheduler = scheduler_of(self)

    def recording(self, version: str) -> dict[str, Any]:
        """Runs the case to its end; what happened."""
        if self.case["engine"]["overlap"]:
            self.scheduler.event_loop_overlap()
        else:
            self.scheduler.event_loop_normal()
        return {
            "id": self.case["id"],
            "sglang": version,
            "stuck": self.stuck,
            "steps": self._steps,
            "requests": self._progress,
        }

    # --- requests ---------------------------------------------------------------------------------

    def _token(self, name: str, index: int) -> int:
        return self._names.setdefault(name, len(self._names)) * _TOKENS_PER_NAME + index

    def arrive(self) -> None:
        """Adds requests that are due, then withdraws those whose clients have gone."""
        from sglang.srt.managers.io_struct import AbortReq

        while self._arrivals and self._arrivals[-1]["arrival_ns"] <= self.now_ns:
            self._add(self._arrivals.pop())
        due = [
            each
            for each in self._aborts
            if each["abort_ns"] <= self.now_ns and each["id"] in self._added
        ]
        for request in due:
            name = request["id"]
            self._aborts.remove(request)
            if "finished_ns" not in self._progress[name]:
                self._aborted.add(name)
                self.scheduler.abort_request(AbortReq(rid=name))

    def _add(self, request: dict[str, Any]) -> None:
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        prompt = [self._token(name, k) for name, size in request["prompt"] for k in range(size)]
        sampling = SamplingParams(
            max_new_tokens=request["output"], ignore_eos=self.case["engine"]["ignore_eos"]
        )
        sampling.normalize(None)
        self.scheduler._add_request_to_queue(
            Req(
                rid=request["id"],
                origin_input_text="",
                origin_input_ids=array("q", prompt),
                sampling_params=sampling,
                vocab_size=_VOCABULARY,
                priority=request.get("priority"),
            )
        )

    def queued(self, name: str, is_retracted: bool) -> None:
        """A request is put into the queue; if not for the first time, it lost its memory."""
        if name in self._added:
            self._out["retracted" if is_retracted else "preempted"].append(name)
        self._inside.discard(name)
        self._added.add(name)

    def withdrawn(self, _: Any, request: Any) -> None:
        """A request has been aborted while it waited or between its chunks."""
        self._progress[request.rid]["aborted_ns"] = self.now_ns

    def streamed(self, requests: list[Any], *_: Any) -> None:
        """Tokens go to clients."""
        for request in requests:
            progress = self._progress[request.rid]
            times_ns = progress["tokens_ns"]
            times_ns += [self.now_ns] * (len(request.output_ids) - len(times_ns))
            if request.finished() and not {"finished_ns", "aborted_ns"} & set(progress):
                end = "aborted_ns" if request.rid in self._aborted else "finished_ns"
                progress[end] = self.now_ns
                self._ending["finished"].append(request.rid)
                self._inside.discard(request.rid)

    # --- the device and the clock -----------------------------------------------------------------

    def submit(self, batch: Any) -> Any:
        """A batch for the device, which takes them in order; its result."""
        import torch
        from sglang.srt.managers.utils import GenerationBatchResult

        scheduler, step_ns = self.scheduler, self.case["step_ns"]
        is_prefill = batch.forward_mode.is_extend()
        decoding = {each.rid for each in batch.decoding_reqs or ()}
        scheduled, tokens, admitted = [], [], []
        for request in batch.reqs:
            name, num_tokens, is_complete = request.rid, 1, True
            if is_prefill and name not in decoding:
                num_tokens = request.extend_len
                num_known = len(request.full_untruncated_fill_ids)
                is_complete = request.extend_end == num_known
                self._num_made[name] = num_known - len(request.origin_input_ids)
                if name not in self._inside:
                    admitted.append([name, request.prefix_len])
                    self._inside.add(name)
            scheduled.append([name, num_tokens])
            # Of a prompt that is not complete the scheduler ignores the token.
            tokens.append(self._token(f"out:{name}", self._num_made[name]))
            self._num_made[name] += is_complete
        start_ns = max(self.now_ns, self._free_ns)
        total = sum(num_tokens for _, num_tokens in scheduled)
        self._free_ns = start_ns + step_ns["constant"] + step_ns["per_token"] * total
        chunked = scheduler.chunked_req
        self._steps.append(
            {
                "planned_ns": self.now_ns,
                "kind": batch.forward_mode.name.lower(),
                "scheduled": scheduled,
                "admitted": admitted,
                **self._out,
                "chunked": None if chunked is None else chunked.rid,
                "free_tokens": scheduler.token_to_kv_pool_allocator.available_size(),
                "evictable_tokens": scheduler.tree_cache.evictable_size(),
                "new_token_ratio": scheduler.new_token_ratio_tracker.current,
                "waiting": [request.rid for request in scheduler.waiting_queue],
                "running": [request.rid for request in scheduler.running_batch.reqs],
                "finished": [],
                "start_ns": start_ns,
                "end_ns": self._free_ns,
            }
        )
        self._out = {"retracted": [], "preempted": []}
        result = GenerationBatchResult(next_token_ids=torch.tensor(tokens, dtype=torch.int64))
        result.step = self._steps[-1]
        return result

    def end(self, result: Any) -> None:
        """The clock moves to the end of a batch."""
        self._ending = result.step
        self.now_ns = max(self.now_ns, result.step["end_ns"])

    def idle(self) -> bool:
        """The clock moves to the next event; false if there is none."""
        times = [each["arrival_ns"] for each in self._arrivals[-1:]]
        times += [each["abort_ns"] for each in self._aborts if each["id"] in self._added]
        later = [time_ns for time_ns in times if time_ns > self.now_ns]
        if later:
            self.now_ns = min(later)
        else:
            self.stuck = bool(self.scheduler.waiting_queue)
        return bool(later)


def watched(run: Run) -> type:
    """`Scheduler` with the methods replaced that receive requests, run batches and report."""
    from sglang.srt.managers.scheduler import Scheduler

    class Watched(Scheduler):  # type: ignore[misc]
        def ingest_requests(self, *_: Any) -> list[Any]:
            run.arrive()
            return []

        def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
            run.queued(req.rid, is_retracted)
            super()._add_request_to_queue(req, is_retracted=is_retracted)

        def send_abort_output(self, abort_req: Any, req: Any) -> None:
            run.withdrawn(abort_req, req)

        def run_batch(self, batch: Any, *_: Any) -> Any:
            self.forward_ct += 1
            if batch.extend_num_tokens:
                self.processed_tokens_counter += batch.extend_num_tokens
            return run.submit(batch)

        def process_batch_result(self, batch: Any, result: Any) -> None:
            run.end(result)
            if batch.forward_mode.is_decode():
                self.batch_result_processor.process_batch_result_decode(batch, result)
            else:
                self.batch_result_processor.process_batch_result_prefill(batch, result)

        def on_idle(self) -> None:
            self.gracefully_exit = not run.idle()

        def launch_batch_sample_if_needed(self, *_: Any) -> None:
            pass

        def _apply_war_barrier(self) -> None:
            pass

    return Watched


_PUBLISHED: list[Any] = []
"""What has published the settings of the last case."""


def publish(engine: dict[str, Any]) -> None:
    """Makes the settings of a case those of the process, with the defaults of `ServerArgs`."""
    from sglang.srt.runtime_context import get_context

    if _PUBLISHED:
        _PUBLISHED.pop().restore()
    _PUBLISHED.append(
        get_context().override_server_args(
            attention_backend="torch_native",
            device="cpu",
            tp_size=1,
            page_size=engine["page_size"],
            disable_overlap_schedule=not engine["overlap"],
            disable_radix_cache=not engine["radix_cache"],
            chunked_prefill_size=engine["chunked_prefill_size"] or -1,
            max_prefill_tokens=engine["max_prefill_tokens"],
            enable_mixed_chunk=engine["mixed_chunk"],
            schedule_policy=engine["schedule_policy"],
            schedule_conservativeness=engine["schedule_conservativeness"],
            enable_priority_scheduling=engine["priority_scheduling"],
            max_running_requests=engine["max_running_requests"],
            pp_max_micro_batch_size=engine["max_running_requests"],
        )
    )
    _PUBLISHED[-1].install()


def memory_of(engine: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The pool of requests, the allocator of tokens and the prefix cache of a case."""
    import torch
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixCache

    pool = ReqToTokenPool(
        size=engine["max_running_requests"],
        max_context_len=engine["context_length"] + 4,
        device="cpu",
        enable_memory_saver=False,
    )
    size, page = engine["max_total_num_tokens"], engine["page_size"]
    memory = torch.float16, "cpu", Silent(), False
    if page == 1:
        allocator = TokenToKVPoolAllocator(size, *memory)
    else:
        allocator = PagedTokenToKVPoolAllocator(size, page, *memory)
    cache = RadixCache(
        CacheInitParams(
            disable=not engine["radix_cache"],
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator,
            page_size=page,
        )
    )
    return pool, allocator, cache


def scheduler_of(run: Run) -> Any:
    """A `Scheduler` with the settings of a case, and all that its constructor would need plain."""
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.schedule_policy import SchedulePolicy
    from sglang.srt.managers.scheduler_components.batch_result_processor import (
        SchedulerBatchResultProcessor,
    )
    from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import (
        NewTokenRatioTracker,
    )
    from sglang.srt.runtime_context import get_schedule
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    engine = run.case["engine"]
    publish(engine)
    pool, allocator, cache = memory_of(engine)
    model = Unset(is_encoder_decoder=False, is_multimodal=False, vocab_size=_VOCABULARY)
    metrics = Silent(enable_metrics=False, num_generated_tokens=0, forward_ct_decode=0)
    beams = Silent(pending_member_rows=lambda _: 0, commit_decode=lambda _: set())
    has_priorities = engine["priority_scheduling"]
    scheduler: Any = object.__new__(watched(run))
    scheduler.__dict__.update(
        # settings
        chunked_prefill_size=engine["chunked_prefill_size"],
        is_mixed_chunk=engine["mixed_chunk"],
        enable_overlap=engine["overlap"],
        max_prefill_tokens=engine["max_prefill_tokens"],
        max_running_requests=engine["max_running_requests"],
        page_size=engine["page_size"],
        enable_priority_scheduling=has_priorities,
        enable_priority_preemption=has_priorities,
        priority_scheduling_preemption_threshold=(
            get_schedule().priority_scheduling_preemption_threshold
        ),
        schedule_low_priority_values_first=False,
        default_priority_value=None,
        abort_on_priority_when_disabled=False,
        max_queued_requests=None,
        spec_algorithm=SpeculativeAlgorithm.NONE,
        disaggregation_mode=DisaggregationMode.NULL,
        device="cpu",
        is_generation=True,
        # memory and policy
        req_to_token_pool=pool,
        token_to_kv_pool_allocator=allocator,
        tree_cache=cache,
        policy=SchedulePolicy(engine["schedule_policy"], cache, False, has_priorities, False),
        new_token_ratio_tracker=NewTokenRatioTracker.from_config(),
        # state
        waiting_queue=[],
        running_batch=ScheduleBatch(reqs=[], batch_is_full=False),
        cur_batch_for_debug=None,
        last_batch=None,
        result_queue=[],
        chunked_req=None,
        forward_ct=0,
        processed_tokens_counter=0,
        gracefully_exit=False,
        enable_continuous_input_polling=False,
        enable_skip_finishing_decode=False,
        _engine_paused=False,
        _sched_idled=False,
        _pending_chunked_abort_req=None,
        # parts that do not take part
        **dict.fromkeys(
            """
            enable_hicache_storage enable_hierarchical_cache enable_hisparse enable_lmcache
            enable_lora enable_unified_cache_external_linker enable_unified_memory is_hybrid_swa
            require_mlp_sync
            """.split(),  # noqa: SIM905
            False,
        ),
        **dict.fromkeys(
            """
            decode_offload_manager dllm_config dynamic_chunk_sizer hisparse_coordinator
            lora_drainer min_free_slots_delayer mm_receiver prefill_delayer
            scheduler_stage_metrics truncation_align_size
            """.split(),  # noqa: SIM905
        ),
        max_prefill_bs=0,
        prefill_decode_interval=0,
        _prefill_decode_interval_remaining=0,
        model_config=model,
        tp_worker=Silent(model_runner=Silent(attn_backend=object(), prefill_aware_swa=False)),
        beam_coordinator=beams,
        dp_attn_adapter=Silent(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        ),
        ngram_embedding_manager=Silent(prepare_for_forward=lambda batch, **_: batch),
        grammar_manager=Silent(has_waiting_grammars=lambda: False),
        load_inquirer=Silent(_get_num_pending_tokens=lambda **_: 0),
        metrics_reporter=metrics,
        batch_result_processor=SchedulerBatchResultProcessor(
            is_generation=True,
            disaggregation_mode=DisaggregationMode.NULL,
            enable_overlap=engine["overlap"],
            enable_overlap_mlx=False,
            model_config=model,
            token_to_kv_pool_allocator=allocator,
            tree_cache=cache,
            hisparse_coordinator=None,
            req_to_token_pool=pool,
            decode_offload_manager=None,
            metrics_collector=Silent(),
            metrics_reporter=metrics,
            draft_worker=None,
            model_worker=None,
            logprob_result_processor=Silent(),
            output_streamer=Silent(stream_output=run.streamed),
            beam_coordinator=beams,
            abort_request=lambda _: None,
        ),
    )
    return scheduler


def main() -> int:
    """Records all cases."""
    source, cases, recordings = map(Path, sys.argv[1:4])
    load(source)
    from importlib.metadata import PathDistribution

    version = PathDistribution(next(source.glob("sglang-*.dist-info"))).version
    with gzip.open(cases, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    with gzip.open(recordings, "wt", encoding="utf-8") as stream:
        for case in found:
            line = Run(case).recording(version)
            stream.write(json.dumps(line, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
