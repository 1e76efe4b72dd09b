"""The verdicts on systems as an object with tables, a picture and a report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.comparison.verdict import Verdict
from spillway.config import files, formatting
from spillway.data import frames
from spillway.data.figures import FIGURES, of_group
from spillway.data.intervals import Interval
from spillway.report import page
from spillway.report.tables import joined

if TYPE_CHECKING:
    import os

    import pandas as pd
    from matplotlib.axes import Axes

    from spillway.report.tables import Parts

_COMPARISON = "comparison"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Systems compared with a baseline, or all with each other, figure by figure.

    Attributes
    ----------
    verdicts
        One per figure and pair of systems, by pair, then figure.
    names
        The systems in order; the first is the baseline, unless all pairs are compared.
    seeds
        The seeds of the runs of every system.
    confidence
        Probability with which all intervals hold together, over all figures, pairs and looks.
    level
        Confidence of each interval: `1 - (1 - confidence) / (verdicts * looks)` (Bonferroni).
    looks
        After how many seeds a sequential comparison may stop; one number otherwise.
    reached_half_width
        Whether every interval is as narrow as `half_width`; None if none was given.
    notes
        Remarks on the comparison as a whole, as sentences. A system that does not keep up with its
        load under the first seed is among them (see `Result.saturation`).
    unvalidated
        The systems with servers whose step times are computed, not measured.
    fingerprints
        Digests of the systems' settings and Spillway's version, in the order of the names.
    """

    verdicts: tuple[Verdict, ...]
    names: tuple[str, ...]
    seeds: tuple[int, ...]
    confidence: float
    level: float
    looks: tuple[int, ...]
    reached_half_width: bool | None
    notes: tuple[str, ...]
    unvalidated: tuple[str, ...]
    fingerprints: tuple[str, ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The compared systems: the baseline of each pair and its challenger."""
        return tuple(dict.fromkeys((known.baseline, known.challenger) for known in self.verdicts))

    @property
    def _is_all_pairs(self) -> bool:
        return any(baseline != self.names[0] for baseline, _ in self.pairs)

    def __getitem__(self, key: tuple[str, str] | tuple[str, str, str]) -> Verdict:
        """The verdict of (challenger, figure) against the first system.

        With all pairs also that of (challenger, baseline, figure); of a pair, the system that is
        named first in `names` is the baseline. KeyError if there is none.
        """
        challenger, *against, figure = key
        wanted = (challenger, against[0] if against else self.names[0], figure)
        for verdict in self.verdicts:
            if (verdict.challenger, verdict.baseline, verdict.figure) == wanted:
                return verdict
        raise KeyError(key)

    @property
    def verdict(self) -> str:
        """What differs, in a sentence per pair."""
        return " ".join(self._verdict_of(*pair) for pair in self.pairs)

    def _verdict_of(self, baseline: str, challenger: str) -> str:
        texts = []
        for outcome in ("better", "worse"):
            own = [
                _gap(known)
                for known in self.verdicts
                if (known.baseline, known.challenger) == (baseline, challenger)
                and known.outcome == outcome
            ]
            if own:
                texts.append(f"{outcome} in {', '.join(own)}")
        if not texts:
            return f"{challenger} is not shown to differ from {baseline}."
        return f"{challenger} against {baseline}: {'; '.join(texts)}."

    def __str__(self) -> str:
        return joined(self._parts())

    def _repr_html_(self) -> str:
        return page.tables(*self._parts())

    def report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes the comparison as one HTML file: what differs, tables, notes, the forest plot.

        The file needs nothing else. The picture needs the extra `plot`.

        Raises ConfigError if the file cannot be written.
        """
        height = 1.5 + 0.35 * len(self.verdicts)
        prints = ", ".join(map("{} {}".format, self.names, self.fingerprints))
        pieces = [
            page.verdict(self.verdict),
            page.tables(*self._parts()),
            page.chart(f"Differences from {self._reference}", self.plot, height=height),
            page.provenance(prints, self.seeds),
        ]
        named = ", ".join(self.names if self._is_all_pairs else self.names[1:])
        if not self._is_all_pairs:
            named += f" against {self.names[0]}"
        page.save(path, title or named, pieces)

    @property
    def _reference(self) -> str:
        return "the baseline of each pair" if self._is_all_pairs else self.names[0]

    def _parts(self) -> Parts:
        which = "all pairs" if self._is_all_pairs else f"baseline {self.names[0]}"
        head = (
            f"{which}, {len(self.seeds)} seeds, paired; all intervals hold "
            f"together with {self.confidence:.4g} confidence ({self.level:.6g} each)"
        )
        blocks = [self._ranking()] if self._is_all_pairs else []
        for baseline, challenger in self.pairs:
            title = f"{challenger} against {baseline}" if self._is_all_pairs else challenger
            header = [title, "baseline", "mean", "difference", "low", "high", "", "verdict"]
            own = (v for v in self.verdicts if (v.baseline, v.challenger) == (baseline, challenger))
            blocks.append([header, *([verdict.figure, *_cells(verdict)] for verdict in own)])
        remarks = [*self.notes, *(dict.fromkeys(v.note for v in self.verdicts if v.note))]
        if self.unvalidated:
            names = ", ".join(self.unvalidated)
            remarks.append(f"step times are computed, not measured (unvalidated): {names}.")
        return head, blocks, remarks

    __repr__ = __str__

    def _ranking(self) -> list[list[str]]:
        """The systems by the first figure: those that are better than more others come first."""
        first = self.verdicts[0].figure
        means: dict[str, float] = {}
        wins, losses = dict.fromkeys(self.names, 0), dict.fromkeys(self.names, 0)
        for verdict in self.verdicts:
            if verdict.figure != first:
                continue
            means |= {verdict.baseline: verdict.before, verdict.challenger: verdict.after}
            better, worse = verdict.challenger, verdict.baseline
            if verdict.outcome == "worse":
                better, worse = worse, better
            elif verdict.outcome != "better":
                continue
            wins[better] += 1
            losses[worse] += 1
        sign = 1 if FIGURES[of_group(first)[0]].better == "lower" else -1
        order = sorted(self.names, key=lambda name: (losses[name] - wins[name], sign * means[name]))
        rows = [
            [name, formatting.number(means[name]), str(wins[name]), str(losses[name])]
            for name in order
        ]
        return [["ranking", first, "better than", "worse than"], *rows]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as numbers, texts and lists, for JSON."""
        document = frames.provenance(seeds=self.seeds, fingerprint=self.fingerprints)
        document |= dataclasses.asdict(self)
        del document["fingerprints"]
        for row, verdict in zip(document["verdicts"], self.verdicts, strict=True):
            row["relative"] = verdict.relative
        return document

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the comparison as JSON. Raises ConfigError if the file cannot be written."""
        files.save_results(path, _COMPARISON, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Reads what `save` wrote. Raises ConfigError for another file."""
        content = files.load_results(path, _COMPARISON, "Comparison.save")
        known = {field.name: content[field.name] for field in dataclasses.fields(cls)}
        known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        known["verdicts"] = tuple(_loaded(of) for of in known["verdicts"])
        return cls(**known)

    def to_frame(self) -> pd.DataFrame:
        """The verdicts as a long pandas DataFrame (extra `frames`).

        One row per verdict: figure, value (the mean paired difference), low, high, n, unit,
        population, the other attributes of `Verdict`, with `sizes` for its `populations`, and
        `relative`. `attrs` holds schema, version, seeds and the fingerprint of each system.
        """
        rows = []
        for verdict in self.verdicts:
            row = dict(vars(verdict))
            row["sizes"] = row.pop("populations")
            shown = frames.described(verdict.figure, row.pop("difference"))
            rows.append({**shown, **row, "relative": verdict.relative})
        attrs = frames.provenance(seeds=self.seeds, fingerprint=self.fingerprints)
        return frames.frame(rows, attrs)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Forest plot: relative differences from the baseline with their intervals, in percent.

        Verdicts whose baseline is zero, or that have no interval, are left out. Draws into `ax`, or
        else into new axes (extra `plot`).
        """
        from spillway.report.style import STYLES, UNVALIDATED, axes_or_new, ink, mark

        axes = axes_or_new(ax)
        colors = {"better": STYLES[2]["color"], "worse": STYLES[1]["color"]}
        shown = [verdict for verdict in self.verdicts if verdict.relative_half_width is not None]

        def label(verdict: Verdict) -> str:
            figure, group = of_group(verdict.figure)
            name = FIGURES[figure].label + (f" of {group}" if group else "")
            if self._is_all_pairs:
                return f"{name}, {verdict.challenger} against {verdict.baseline}"
            return f"{name}, {verdict.challenger}" if len(self.names) > 2 else name

        for place, verdict in enumerate(shown):
            percent = 100 / abs(verdict.before)
            axes.errorbar(
                percent * verdict.difference.mean,
                place,
                xerr=[[percent * reach] for reach in verdict.difference.reaches],
                color=colors.get(verdict.outcome, "#777777"),
                marker="o" if verdict.outcome in colors else "s",
                markerfacecolor=None if verdict.outcome in colors else axes.get_facecolor(),
                capsize=3,
            )
        axes.axvline(0, color=ink(axes), linewidth=0.8)
        axes.set_yticks(range(len(shown)), list(map(label, shown)))
        axes.invert_yaxis()
        axes.set_xlabel(f"difference from {self._reference} (%)")
        if self.unvalidated:
            mark(axes, UNVALIDATED)
        return axes


def _loaded(content: dict[str, Any]) -> Verdict:
    sizes = content["populations"]
    return Verdict(
        **{
            **content,
            "difference": Interval(**content["difference"]),
            "populations": None if sizes is None else tuple(sizes),
        }
    )


def _gap(verdict: Verdict) -> str:
    share = "" if verdict.relative is None else f" ({verdict.relative:+.1%})"
    before, after = formatting.number(verdict.before), formatting.number(verdict.after)
    return f"{verdict.figure}, {after} instead of {before}{share}"


def _cells(verdict: Verdict) -> list[str]:
    gap = verdict.difference
    share = "" if verdict.relative is None else f"{verdict.relative:+.1%}"
    outcome: str = verdict.outcome
    if verdict.more_seeds is not None:
        outcome += f"; {verdict.more_seeds:,} more seeds"
    numbers = (verdict.before, verdict.after, gap.mean, gap.low, gap.high)
    return [*(formatting.number(value) for value in numbers), share, outcome]
