"""The offered requests of a run as columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from spillway._core.metrics import statuses
from spillway.config.extras import require

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from spillway._core.cluster import RequestRecord


CODED = {
    "outcome": "outcomes",
    "reason": "reasons",
    "tenant": "tenants",
    "slo_class": "slo_classes",
    "hedge": "copies",
}
"""Column of codes → key of the names that the codes stand for."""


_REQUESTED = "requested_output_tokens"
ATTRIBUTE = "attribute."
"""What the names of the trace's further columns begin with."""


class Columns(Mapping[str, "NDArray[Any]"]):
    """Coded columns of a run's requests, each derived on first use."""

    def __init__(self, names: tuple[str, ...], derive: Callable[[str], NDArray[Any]]) -> None:
        self._names = names
        self._derive = derive
        self._known: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._known:
            self._known[name] = self._derive(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[type, tuple[dict[str, NDArray[Any]]]]:
        return dict, (dict(self),)


class RequestIds(Sequence[str]):
    """The names that a trace gives its requests, fetched on first use.

    Empty if the row numbers are the names.
    """

    def __init__(self, record: RequestRecord) -> None:
        self._record = record

    @functools.cached_property
    def _known(self) -> list[str]:
        return self._record.request_id

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._known[index]

    def __len__(self) -> int:
        return len(self._known)

    def __reduce__(self) -> tuple[type, tuple[list[str]]]:
        return list, (self._known,)


class Requests(Mapping[str, "NDArray[Any]"]):
    """One row per offered request in order of arrival, as read-only columns.

    request_id, tenant, slo_class, outcome, reason (text; reason is empty unless the request was
    rejected); admitted (bool, by the gateway); instance (int, -1: never routed); input_tokens,
    output_tokens (delivered so far), requested_output_tokens (that the request asked for),
    attempts, preemptions (int); arrival_s, ttft_s, e2e_s, tpot_s, queue_s, scheduling_delay_s,
    itl_mean_s (seconds, NaN: not applicable).
    With prefill and decode pools also: prefill_instance (int, -1: the prompt was computed where the
    request was continued), prefill_end_s (when), transfer_s (of the prompt, with the wait for the
    link), decode_queue_s (from the end of the prefill to the seat at the second instance, without
    the transfer); instance is then the second one, as soon as the prompt is there; wasted_tokens
    (int, in memory when the request ended without its answer, over all attempts).
    With `fleet.migration` also migrations (int, how often it was sent to another instance),
    recomputed_tokens (int, that it had in the memory of an instance that it lost, and that were
    computed again); with pools, the columns of the legs are those after the last migration.
    Where clients hedge also hedge (text: empty, no second copy was sent; first or second, the copy
    that had the first token; unanswered, none had one); a row describes the copy that answered, or
    ended last, and attempts counts both.
    With a trace or clients that state them also max_tokens (int, 0: none), where requests or
    tenants name models model (text: that which the request names itself, or else its tenant; empty:
    none), with a `length_prediction` predicted_output_tokens (int, as of the last attempt), and
    with a trace that has further columns `attribute.NAME` (text, empty: none).
    Where clients retry, the row describes the last attempt, but arrival is that of the first, from
    which latencies count; queue_s is that of the last attempt.
    """

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any]],
        names: Mapping[str, Sequence[str]],
        offered: Mapping[str, NDArray[Any]],
        optional: Sequence[str] = (),
    ) -> None:
        self._columns = columns
        self._names = names
        self._offered = offered
        self._optional = tuple(optional)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name == "request_id":
            ids = self._names["request_id"]
            return np.array(ids[: self.num_rows] if ids else [str(i) for i in range(self.num_rows)])
        if name == _REQUESTED:
            return self._offered["output_tokens"]
        if name in self._optional:
            return self._optional_column(name)
        if name in CODED:
            return np.array(self._names[CODED[name]]).take(self._columns[name])
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("request_id", *self._columns, _REQUESTED, *self._optional))

    def __len__(self) -> int:
        return 2 + len(self._columns) + len(self._optional)

    def _optional_column(self, name: str) -> NDArray[Any]:
        column = self._offered[name]
        if name == "model":
            return np.array(self._names["models"]).take(column)
        if not name.startswith(ATTRIBUTE):
            return column
        return np.array([*self._names[name], ""]).take(column)  # -1: the last one

    def __repr__(self) -> str:
        return f"<Requests: {self.num_rows} rows, columns {', '.join(self)}>"

    @property
    def num_rows(self) -> int:
        """Number of requests."""
        return len(self._columns["arrival_s"])

    def http_status(self, system: str) -> NDArray[Any]:
        """The HTTP status that a system answers each request with; 0: none yet.

        `system`: "vllm", "llm-d", "llm-d-may-2026", "dynamo" (1.3 and later; 1.2 answers 503 for
        529), "envoy" or "vllm-on-eks". 200 of completed requests, 500 of failed ones, otherwise by
        the reason.
        """
        known = tuple(next(iter(statuses.values())))
        if system not in known:
            raise ValueError(f"system is {system!r} but must be one of {', '.join(known)}")
        by_outcome = {"completed": 200, "failed": 500}
        of_outcome = [by_outcome.get(name, 0) for name in self._names["outcomes"]]
        of_reason = [statuses[name][system] if name else 0 for name in self._names["reasons"]]
        found = np.array(of_outcome).take(self._columns["outcome"])
        return np.where(found, found, np.array(of_reason).take(self._columns["reason"]))

    def to_frame(self) -> pd.DataFrame:
        """The columns as a pandas DataFrame (extra `frames`).

        Outcomes, reasons, tenants and classes are categories; request_id is text that Arrow holds.
        """
        pandas = require("pandas", "frames")
        columns = {}
        for name in self:
            if name in CODED:
                kind = pandas.CategoricalDtype(list(self._names[CODED[name]]))
                columns[name] = pandas.Categorical.from_codes(self._columns[name], dtype=kind)
            elif name == "request_id":
                columns[name] = pandas.StringDtype("pyarrow").__from_arrow__(self._arrow_ids())
            else:
                columns[name] = self[name]
        frame: pd.DataFrame = pandas.DataFrame(columns)
        return frame

    def _arrow_ids(self) -> pa.Array:
        arrow = require("pyarrow", "frames")
        ids = self._names["request_id"]
        if ids:
            return arrow.array(ids[: self.num_rows], arrow.string())
        return arrow.array(np.arange(self.num_rows)).cast(arrow.string())

    def to_arrow(self) -> pa.Table:
        """The columns as a pyarrow Table (extra `frames`).

        Outcomes, reasons, tenants and classes are dictionaries of text; NaN and the instance of a
        request that was never routed are null.
        """
        arrow = require("pyarrow", "frames")
        columns = {}
        for name in self:
            if name in CODED:
                codes = arrow.array(self._columns[name].astype(np.int32))
                words = arrow.array(list(self._names[CODED[name]]), arrow.string())
                columns[name] = arrow.DictionaryArray.from_arrays(codes, words)
            elif name == "request_id":
                columns[name] = self._arrow_ids()
            else:
                is_number = name in ("instance", "prefill_instance")
                missing = self[name] < 0 if is_number else None
                columns[name] = arrow.array(self[name], mask=missing, from_pandas=True)
        table: pa.Table = arrow.table(columns)
        return table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol, by which Polars, DuckDB and others read the columns."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
