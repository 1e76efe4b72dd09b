"""The result of `advise`: plain values, as text, JSON, and the parts of a report."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
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
    each class or tenant that the SLO names.
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
        """The share that is shed, and that of each class or tenant that the SLO names."""
        if self.shed is None:
            return "-"
        groups = [
            f"{name}: {share:.1%}" for name, share in self.shed_of.items() if share is not None
        ]
        return f"{self.shed:.1%}{of}" + (f" ({', '.join(groups)})" if self.shed and groups else "")


@dataclasses.dataclass(frozen=True)
class Servers:
    """How many servers keep the SLO with today's settings: `enough`, `too_few`; None: unknown."""

    today: int
    enough: int | None
    too_few: int | None
    undecided: tuple[int, ...] = ()

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
        if advised and "breaks" not in advised:
            return "undecided"
        enough = self.servers.enough
        return "more_servers" if enough is not None and enough > self.servers.today else "not_found"

    @property
    def verdict(self) -> str:
        """What to do, in a sentence or two."""
        slo = ", ".join(self.slo)
        where = f", also with {' and with '.join(self.what_if)}" if self.what_if else ""
        holds = "hold" if len(self.slo) > 1 else "holds"
        sure = "" if "one run" in self.traffic else " (95% confidence)"
        servers = self.servers
        more = servers.enough is not None and servers.enough > servers.today
        outcome = self.outcome
        if outcome == "holds":
            fewer = ""
            if servers.enough is not None and servers.enough < servers.today:
                fewer = f" {servers.enough} of the {servers.today} servers would be enough."
            return f"Nothing has to change: {slo} {holds}{where}{sure}.{fewer}"
        changes = ", ".join(f"{path} = {_in_words(value)}" for path, value in self.settings.items())
        instead = f" With today's settings it takes {servers.enough} servers." if more else ""
        if outcome == "found":
            carried = f" ({self.target}: {', '.join(self.files)})" if self.files else ""
            return (
                f"Set {changes}{carried}: then {slo} {holds}{where}{sure}.{self._gain()}{instead}"
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

    def _gain(self) -> str:
        """The figure that is worst with today's settings, before and after, and what is shed."""
        by_name = {(known.settings, known.traffic): known for known in self.scenarios}
        texts = []
        for traffic in ("", *self.what_if):
            before, after = by_name["today", traffic], by_name["advised", traffic]
            pairs = list(zip(before.figures, after.figures, strict=True))
            old, new = next((pair for pair in pairs if pair[0].verdict != "holds"), pairs[0])
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
            blocks.append(f"against today's settings: {head}\n\n{verdicts}")
        blocks += [f"# --- {name}\n{text.rstrip()}" for name, text in self.files.items()]
        if self.notes:
            blocks.append("\n".join(f"note: {note}" for note in self.notes))
        blocks.append("\n".join(["step by step:", *(f"  {line}" for line in self.commands)]))
        return "\n\n".join(blocks)

    def __repr__(self) -> str:
        return self.text()

    def _rows(self) -> list[list[str]]:
        rows = [
            ["traffic", "settings", "verdict", "figure", "mean", "low", "high", "bound", "shed"]
        ]
        for known in self.scenarios:
            shed = known.shed_text()
            for i, of in enumerate(known.figures):
                head = ["", "", ""]
                if i == 0:
                    head = [known.traffic or "of the log", known.settings, known.verdict]
                values = map(formatting.number, (of.value, of.low, of.high))
                rows.append([*head, of.figure, *values, of.bound, shed if i == 0 else ""])
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
            page.folded("Against today's settings", page.preformatted(self.comparison)),
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


def _in_words(value: Any) -> str:
    return in_words(value) if isinstance(value, list | Mapping) else formatting.setting(value)
