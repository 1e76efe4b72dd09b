"""Runs of one simulation under several seeds, and statistics over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

from spillway.config.formatting import number, table
from spillway.config.messages import checked
from spillway.config.provenance import notes_on_servers
from spillway.config.randomness import blocks, is_resampled, note_on_copies, num_blocks
from spillway.data import effective
from spillway.data.extrapolation import extrapolations
from spillway.data.figures import FIGURES, is_share, is_signed, unknown, usual_skewness
from spillway.data.intervals import Interval, caveats, fewest, interval
from spillway.data.result_data import ResultData

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    from spillway.data.figures import Figure, Figures


_Run_co = TypeVar("_Run_co", bound=ResultData, covariant=True)


# A block bootstrap underestimates how much traces differ if its blocks are shorter than this many
# mean latencies.
_LEAST_LATENCIES = 5

# The parts of a run's output that hold its results.
_OUTCOME = ("summary", "by_class", "by_tenant", "ledger", "instances", "steps", "events", "end_s")


class Intervals(dict[str, "Interval | None"]):
    """Means of figures with their intervals, shown as a table; None where no run has the figure."""

    _mean = "mean"

    def __missing__(self, name: str) -> Interval | None:
        raise KeyError(unknown(name, self))

    def _shown(self) -> dict[str, Interval]:
        return {name: interval for name, interval in self.items() if interval is not None}

    def rows(self) -> list[list[str]]:
        """The intervals as text, below a header."""
        rows = [["figure", self._mean, "low", "high", "runs"]]
        for name, shown in self._shown().items():
            values = (shown.mean, shown.low, shown.high)
            rows.append([name, *map(number, values), str(shown.n)])
        return rows

    def __repr__(self) -> str:
        return table(self.rows())


class Differences(Intervals):
    """Mean differences of figures with their intervals; the table shows those that differ."""

    _mean = "difference"

    def _shown(self) -> dict[str, Interval]:
        known = super()._shown().items()
        return {name: gap for name, gap in known if any((gap.mean, gap.low, gap.high))}


class Replications(Sequence[_Run_co]):
    """Runs of one simulation under several seeds, in the order of the seeds.

    Where seeds change nothing there is one run for all of them, and figures have no interval. Where
    each seed replays another block bootstrap of a trace, intervals are those of the mean over
    traces of this length.
    """

    def __init__(self, results: Sequence[_Run_co]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> _Run_co: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> _Run_co | Self:
        if isinstance(index, slice):
            return type(self)(self._results[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(result.seed for result in self._results)

    @property
    def is_replicated(self) -> bool:
        """Whether the runs differ; identical runs are one observation.

        Runs are identical if nothing in the configuration is random (see
        `randomness.random_streams`).
        """
        first = self._results[0]._output if self._results else {}
        return any(
            result._output[key] != first[key] for result in self._results[1:] for key in _OUTCOME
        )

    @property
    def is_resampled(self) -> bool:
        """Whether each seed replays another block bootstrap of a trace."""
        return bool(self._results) and is_resampled(self._results[0].simulation)

    @property
    def num_blocks(self) -> float | None:
        """How many blocks of the bootstrap the trace holds; None without a bootstrap.

        Infinite if that is unknown because only the digest of the trace's requests was saved.
        """
        return num_blocks(self._results[0].simulation) if self._results else None

    @property
    def distinct(self) -> tuple[_Run_co, ...]:
        """All runs, or the first if they are identical."""
        return self._results if self.is_replicated else self._results[:1]

    def notes(self) -> list[str]:
        """Remarks on the intervals, e.g. that a bootstrap has too few blocks.

        Also that the first run leaves the batches that a server was fitted to, and that servers
        are not validated.
        """
        if len(self) < 2:
            return []
        first = self._results[0]
        found = [*extrapolations(first), *notes_on_servers([first.simulation])]
        if not self.is_replicated:
            return [note_on_copies([first.simulation]), *found]
        return [*self._notes_on_blocks(), *found]

    def _notes_on_blocks(self) -> Iterator[str]:
        shown = {
            name: interval for name, interval in self.summary().items() if FIGURES[name].is_main
        }
        yield from caveats(shown)
        bootstrap = blocks(self._results[0].simulation)
        if bootstrap is None:
            return
        _, length_s = bootstrap
        latency = self.summary()["mean_e2el_ms"]
        if latency is not None and length_s * 1000 < _LEAST_LATENCIES * latency.mean:
            yield (
                f"blocks of {length_s:.3g} s are short beside the mean latency of "
                f"{latency.mean / 1000:.3g} s: the intervals lack congestion that lasts longer; "
                "state a longer block_s."
            )

    def summary(self, confidence: float = 0.95) -> Intervals:
        """Mean over the seeds with its interval per figure; None where no seed has one."""
        return self._intervals([result.summary() for result in self.distinct], confidence)

    def by_class(self, confidence: float = 0.95) -> dict[str, Intervals]:
        """The figures of `summary` per class of service."""
        return self._grouped([result.by_class() for result in self.distinct], confidence)

    def by_tenant(self, confidence: float = 0.95) -> dict[str, Intervals]:
        """The figures of `summary` per tenant."""
        return self._grouped([result.by_tenant() for result in self.distinct], confidence)

    def interval(self, figure: Callable[[_Run_co], float], confidence: float = 0.95) -> Interval:
        """Mean over the seeds, with its confidence interval, of any function of a result.

        There is no interval where all runs have the same value from 0 to 1: it may be a share.
        """
        values = [figure(result) for result in self.distinct]
        may_be_share = 0 <= min(values) == max(values) <= 1
        return interval(values, confidence, is_share=may_be_share, num_blocks=self.num_blocks)

    def minus(self, other: Replications[Any], confidence: float = 0.95) -> Differences:
        """Mean difference from `other` per figure, paired by seed: both saw the same requests.

        It prints as a table of the figures that differ, with their intervals.

        Over resamples of a trace the difference is that over traces of this length, as in
        `summary`.

        Raises ValueError unless both have the same seeds in the same order.
        """
        if self.seeds != checked("other", other, Replications, "Results").seeds:
            raise ValueError(f"the seeds differ: {self.seeds} and {other.seeds}")
        summaries = [result.summary() for result in self]
        other_summaries = [result.summary() for result in other]
        gaps = [_difference(a, b) for a, b in zip(summaries, other_summaries, strict=True)]
        if not (self.is_replicated or other.is_replicated):
            gaps = gaps[:1]
        num_blocks = fewest([self.num_blocks, other.num_blocks])
        return Differences(_intervals(gaps, confidence, num_blocks, summaries, other_summaries))

    def _grouped(
        self, groups: Sequence[Mapping[str, Figures]], confidence: float
    ) -> dict[str, Intervals]:
        names = dict.fromkeys(name for group in groups for name in group)
        return {
            name: self._intervals([group[name] for group in groups if name in group], confidence)
            for name in names
        }

    def _intervals(
        self, populations: Sequence[Mapping[str, Figure]], confidence: float
    ) -> Intervals:
        return _intervals(populations, confidence, self.num_blocks, populations)


def _intervals(
    populations: Sequence[Mapping[str, Figure]],
    confidence: float,
    num_blocks: float | None,
    *sources: Sequence[Mapping[str, Figure]],
) -> Intervals:
    """The interval per figure of the only source, or of the differences between two."""
    result = Intervals()
    for name in populations[0] if populations else ():
        if name == "approximate":
            continue
        values = [float(v) for p in populations if (v := p[name]) is not None]
        if not values:
            result[name] = None
            continue
        caveat = ""
        if num_blocks is not None:
            caveat = next(filter(None, (effective.caveat(name, runs) for runs in sources)), "")
        skewness = usual_skewness(name) if len(sources) == 1 else 0.0
        result[name] = interval(
            values, confidence, is_share=is_share(name), is_difference=len(sources) > 1,
            is_signed=is_signed(name), num_blocks=num_blocks, skewness=skewness, caveat=caveat,
        )  # fmt: skip
    return result


def _difference(a: Figures, b: Figures) -> dict[str, Figure]:
    """The figures of `a` minus those of `b`; None where one of them has none."""
    both = ((name, a[name], b.get(name)) for name in a)
    return {name: None if x is None or y is None else float(x) - float(y) for name, x, y in both}
