"""The result of `advise`: plain values, as text, JSON, and the parts of a report."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spillway.config import files, formatting
from spillway.config.differences import in_words
from spillway.report import page

if TYPE_CHECKING:
    import os

    from spillway.study.verdicts import Verdict

Outcome = Literal["holds", "found", "more_servers", "not_found", "undecided"]
"""holds: today's settings keep the SLO; found: the advised ones do; more_servers: only more servers
do; not_found: neither; undecided: the runs do not show whether the advised ones do."""

COMPUTED = "step times computed, not measured"
_ADVICE = "advice"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A bound: whether it holds with 95% confidence, and the mean of its figure with an interval.

    Without values, `value`, `low` and `high` are None.
    """

    figure: str
    bound: str
    verdict: Verdict
    value: float | None
    low: float | None
    high: float | None

    @property
    def nearness(self) -> float:
        """How near the figure is to its bound: their ratio, above 1 if an upper one is broken."""
        relation, _, bound = self.bound.partition(" ")
        if not self.value or not float(bound):
            return 0.0
        ratio = self.value / float(bound)
        return ratio if relation == "<=" else 1 / ratio

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.figure} has no value"
        ends = ""
        if self.low is not None and self.high is not None:
            ends = f" ({formatting.number(self.low)} to {formatting.number(self.high)})"
        return f"{self.figure} {formatting.number(self.value)}{ends}"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Settings under one traffic: `today` or `advised`; `traffic` is empty for that of the log.

    `shed` is the share of the requests that are rejected, expired or evicted, `shed_of` that of
    each class or tenant that the SLO names, and of the other tenants unless they are many.
    """

    settings: str
    traffic: str
    verdict: Verdict
    figures: tuple[Judged, ...]
    shed: float | None
    seeds: int
    failure: str = ""
    shed_of: Mapping[str, float | None] = dataclasses.field(default_factory=dict)

    def shed_text(self, of: str = "") -> str:
        """The share that is shed, and that of each class or tenant, the largest first."""
        if self.shed is None:
            return "-"
        known = {name: share for name, share in self.shed_of.items() if share is not None}
        groups = [
            f"{name}: {known[name]:.1%}" for name in sorted(known, key=lambda name: -known[name])
        ]
        return f"{self.shed:.1%}{of}" + (f" ({', '.join(groups)})" if self.shed and groups else "")


@dataclasses.dataclass(frozen=True)
class Servers:
    """How many servers keep the SLO with today's settings: `enough`, `too_few`; None: unknown."""

    today: int
    enough: int | None
    too_few: int | None
    undecided: tuple[int, ...] = ()

    def without_today(self) -> Servers:
        """The same where today's number is known to be too few."""
        too_few = max(self.today, self.too_few or 0)
        undecided = tuple(number for number in self.undecided if number > too_few)
        return dataclasses.replace(self, too_few=too_few, undecided=undecided)

    def __str__(self) -> str:
        if self.enough is None:
            less = "" if self.too_few is None else f"; {self.too_few} are too few"
            return f"with today's settings no number of servers that was tried holds{less}"
        less = "" if not self.too_few else f"; {self.too_few} too few"
        more = (
            f"; {', '.join(map(str, sorted(self.undecided)))} undecided" if self.undecided else ""
        )
        return f"with today's settings {self.enough} servers are enough{less}{more}"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Advice:
    """What to do so that an SLO holds, and how sure that is.

    Attributes
    ----------
    log, traffic, fleet, slo, what_if
        What was asked.
    target
        The system that `files` are for; None: nothing was exported.
    settings
        The settings that change, by path; empty if nothing has to, or if `is_found` is false.
    is_found
        Whether there are settings, today's or others, to advise.
    scenarios
        The verdicts on today's settings and the advised ones, under each traffic.
    servers
        How many servers keep the SLO with today's settings.
    findings
        What is wrong with today's settings.
    search, comparison
        The search and the comparison with today's settings, as text; empty without them.
    files
        The files of the target by name.
    commands
        The steps, to be repeated in a shell.
    notes
        Remarks.
    """

    log: str
    traffic: str
    fleet: str
    slo: tuple[str, ...]
    what_if: tuple[str, ...]
    target: str | None
    settings: Mapping[str, Any]
    is_found: bool
    scenarios: tuple[Scenario, ...]
    servers: Servers
    findings: tuple[str, ...]
    search: str
    comparison: str
    files: Mapping[str, str]
    commands: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """What the verdict is, in a word."""
        today = {known.verdict for known in self.scenarios if known.settings == "today"}
        advised = {known.verdict for known in self.scenarios if known.settings == "advised"}
        if today == {"holds"} and not self.settings:
            return "holds"
        if advised == {"holds"}:
            return "found"
        if "breaks" not in (advised or today):
            return "undecided"
        enough = self.servers.enough
        return "more_servers" if enough is not None and enough > self.servers.today else "not_found"

    @property
    def verdict(self) -> str:
        """What to do, in a sentence or two."""
        slo = ", ".join(self.slo)
        where = self._stress.replace(", with", ", also with", 1)
        holds = "hold" if len(self.slo) > 1 else "holds"
        condition = ", if the servers are as computed" if COMPUTED in self.fleet else ""
        sure = "" if "one run" in self.traffic else f" (95% confidence{condition})"
        servers = self.servers
        more = servers.enough is not None and servers.enough > servers.today
        outcome = self.outcome
        if outcome == "holds":
            fewer = ""
            if servers.enough is not None and servers.enough < servers.today:
                fewer = f" {servers.enough} of the {servers.today} servers would be enough."
            more_traffic = (
                " No limit is needed, and none was searched; --what-if 'all: rate x2 for 60s' asks "
                "what more traffic takes."
            )
            ending = fewer if where else f"{fewer}{more_traffic}"
            if self.files:
                ending += f" {self.target} runs it with {', '.join(self.files)}."
            return f"Nothing has to change: {slo} {holds}{where}{sure}.{ending}"
        changes = ", ".join(f"{path} = {_in_words(value)}" for path, value in self.settings.items())
        most = "at most " if servers.undecided else ""
        instead = f" With today's settings it takes {most}{servers.enough} servers." if more else ""
        if outcome == "found":
            carried = f" ({self.target}: {', '.join(self.files)})" if self.files else ""
            return (
                f"Set {changes}{carried}: then {slo} {holds}{where}{sure}.{self._gain()}{instead}"
            )
        if outcome == "undecided" and not self.settings:
            return (
                f"It is undecided whether {slo} {holds} with today's settings{where}, and no limit "
                f"that was tried is better.{instead} A longer log may decide, or --replicate fit."
            )
        if outcome == "undecided":
            return (
                f"It is undecided whether {slo} {holds} with {changes}{where}.{self._gain()}"
                f"{instead} A longer log may decide, or --replicate fit."
            )
        if outcome == "more_servers":
            return (
                f"It takes {servers.enough} servers in place of {servers.today}: with the limits "
                f"that were tried, {slo} {'do' if len(self.slo) > 1 else 'does'} not hold{where}."
            )
        return (
            f"{slo} {'do' if len(self.slo) > 1 else 'does'} not hold{where}, with any limit or "
            "number of servers that was tried."
        )

    @property
    def _stress(self) -> str:
        return with_all(self.what_if)

    def _gain(self) -> str:
        """The figure that is worst with today's settings, before and after, and what is shed."""
        by_name = {(known.settings, known.traffic): known for known in self.scenarios}
        texts = []
        for traffic in ("", *self.what_if):
            before, after = by_name["today", traffic], by_name["advised", traffic]
            pairs = list(zip(before.figures, after.figures, strict=True))
            wrong = [pair for pair in pairs if pair[0].verdict != "holds"]
            old, new = max(wrong or pairs, key=lambda pair: pair[0].nearness)
            instead = "nothing" if old.value is None else formatting.number(old.value)
            shed = "" if after.shed is None else f"; {after.shed_text(' of the requests')} shed"
            texts.append(f" {traffic or 'Traffic of the log'}: {new} instead of {instead}{shed}.")
        return "".join(texts)

    def text(self) -> str:
        """The verdict, what it rests on, and the commands; the report has the search, too."""
        blocks = [
            formatting.wrapped(self.verdict),
            f"{self.log}: {self.traffic}\nservers: {self.fleet}\n{self.servers}",
            formatting.table(self._rows()),
        ]
        if self.findings:
            lines = [formatting.wrapped(f"{i}. {text}") for i, text in enumerate(self.findings, 1)]
            blocks.append("\n".join(["today's settings:", *lines]))
        if self.comparison:
            head, verdicts, *_ = self.comparison.split("\n\n")
            blocks.append(f"against today's settings{self._stress}: {head}\n\n{verdicts}")
        blocks += [f"# --- {name}\n{text.rstrip()}" for name, text in self.files.items()]
        if self.notes:
            blocks.append("\n".join(f"note: {note}" for note in self.notes))
        blocks.append("\n".join(["step by step:", *(f"  {line}" for line in self.commands)]))
        return "\n\n".join(blocks)

    def __repr__(self) -> str:
        return self.text()

    def _rows(self) -> list[list[str]]:
        rows = [
            ["traffic", "settings", "figure", "mean", "low", "high", "bound", "verdict", "shed"]
        ]
        for known in self.scenarios:
            shed = known.shed_text()
            for i, of in enumerate(known.figures):
                head = ["", ""]
                if i == 0:
                    head = [known.traffic or "of the log", known.settings]
                values = map(formatting.number, (of.value, of.low, of.high))
                rows.append(
                    [*head, of.figure, *values, of.bound, of.verdict, shed if i == 0 else ""]
                )
        return rows

    def parts(self, charts: str = "") -> list[str]:
        """The pieces of a report, the verdict first."""

        def listed(heading: str, texts: tuple[str, ...]) -> str:
            items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
            return f"<h2>{heading}</h2><ul>{items}</ul>" if items else ""

        about = f"{self.log}: {self.traffic}. Servers: {self.fleet}; {self.servers}."
        return [
            page.verdict(self.verdict),
            f"<p>{html.escape(about)}</p>",
            page.table(*self._rows()),
            charts,
            listed("What is wrong today", self.findings),
            *(
                f"<h2>{html.escape(name)}</h2>{page.preformatted(text)}"
                for name, text in self.files.items()
            ),
            page.folded(
                f"Against today's settings{self._stress}", page.preformatted(self.comparison)
            ),
            page.folded("The search", page.preformatted(self.search)),
            listed("Notes", self.notes),
            f"<h2>Step by step</h2>{page.preformatted(chr(10).join(self.commands))}",
        ]

    def report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes the advice as one HTML file, without the charts of `advise(out=…)`.

        Raises ConfigError if the file cannot be written.
        """
        page.save(path, title or f"Advice for {Path(self.log).stem}", self.parts())

    def to_dict(self) -> dict[str, Any]:
        """Everything as data, as `spillway advise --json` prints it."""
        return {"outcome": self.outcome, "verdict": self.verdict, **dataclasses.asdict(self)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the advice as JSON. Raises ConfigError if the file cannot be written."""
        files.save_results(path, _ADVICE, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Advice:
        """Reads what `save` wrote. Raises ConfigError for another file."""
        content = files.load_results(path, _ADVICE, "Advice.save")
        known = {field.name: content[field.name] for field in dataclasses.fields(cls)}
        for name in ("slo", "what_if", "findings", "commands", "notes"):
            known[name] = tuple(known[name])
        known["servers"] = Servers(
            **{**known["servers"], "undecided": tuple(known["servers"]["undecided"])}
        )
        known["scenarios"] = tuple(
            Scenario(**{**of, "figures": tuple(Judged(**figure) for figure in of["figures"])})
            for of in known["scenarios"]
        )
        return cls(**known)


def with_all(what_if: Sequence[str]) -> str:
    """What-ifs as the end of a clause; empty without any."""
    return f", with {' and with '.join(what_if)}" if what_if else ""


def _in_words(value: Any) -> str:
    return in_words(value) if isinstance(value, list | Mapping) else formatting.setting(value)
