"""Formats of files: what they give, how they are detected and read, and their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from spillway.files.error import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from spillway.files.head import Head, Layout
    from spillway.files.options import Option
    from spillway.files.recordings.rows import Settings
    from spillway.files.recordings.source import Source
    from spillway.files.traces.rows import Rows
    from spillway.files.traces.table import Int64s


Content: TypeAlias = Literal["trace", "recordings", "step_logs", "histograms", "points"]
"""What a file gives: `read_…` reads it."""


@dataclass(frozen=True)
class Format:
    """A format of files.

    The command line imports the module of every format that gives a trace at startup, so such a
    module imports NumPy and readers only inside its functions.

    Attributes
    ----------
    name : str
        The name for `format=…` of the readers; unique among the formats that give the same.
    doc : str
        A description on one line: the tool, its option and the file, or its columns.
    layout : {"csv", "jsonl", "json"}
        Where the names of columns are. `csv`: in the header row; `jsonl`: a JSON object per line,
        the keys of the first; `json`: the keys of the object that the whole file holds.
    required : tuple of str
        The columns that every file of the format has, and that a reader cannot do without.
    gives : tuple of str
        What can be read from a file.
    detect : callable, optional
        `detect(source)` returns whether a file without `required` columns is of the format.
    precedence : int
        Of the formats that detect a file, the one with the highest number is chosen, among equals
        the one with the most required columns.
    options : tuple of Option
        Facts about a file that the file itself does not state.
    arrival : str
        Of a trace, a table whose rows are requests: the column with the arrivals, which ascend
        unless the trace is sorted (see `sorts`).
    rows : callable, optional
        `rows(table, **options)` returns the `Rows` of some consecutive rows of a trace, a
        `CsvTable` or a `JsonlTable`, whose columns are the objects' keys. Its docstring is remarks
        for users, a part of the documentation of the reader; so is that of `read`.
    optional : tuple of str or None
        Further columns of a trace that are read. A warning names those of a file that are neither
        required nor optional. None: files have many other columns, and there is no warning.
    expand : callable, optional
        `expand(table)` returns the table of the requests of some lines that hold several each;
        `arrival` is one of its columns.
    select : callable, optional
        `select(table)` returns which rows are requests; by default all.
    left_out : str
        What the other rows are, for a warning that counts them; "" if they are nothing to warn of.
    joined : bool
        Whether `rows` gets all rows of a file at once, because they depend on each other; malformed
        ones cannot be skipped.
    sorts : bool
        Whether traces are always sorted on reading, because they are not in order of arrival.
    retime : callable, optional
        `retime(path, arrival_ns, **options)` replaces the ascending arrivals of the whole trace;
        the result must ascend too. `since_first` if times do not count from the start of the trace,
        such as dates.
    read : callable, optional
        `read(source, settings)` returns the measurements in a file, one per run, engine or group;
        those of requests as `Rows` of `files.recordings.rows`.
    measured : tuple of str
        The columns that measurements need beyond the required ones.
    requests_of : callable, optional
        `requests_of(path)` returns where the tool lists the requests of a file with their figures.
        In a folder that has it, the file is not read by itself.

    """

    name: str
    doc: str
    layout: Layout = "json"
    required: tuple[str, ...] = ()
    gives: tuple[Content, ...] = ("trace",)
    detect: Callable[[Source], bool] | None = None
    precedence: int = 0
    options: tuple[Option, ...] = ()
    arrival: str = ""
    rows: Callable[..., Rows] | None = None
    optional: tuple[str, ...] | None = ()
    expand: Callable[..., Any] | None = None
    select: Callable[..., Sequence[bool]] | None = None
    left_out: str = ""
    joined: bool = False
    sorts: bool = False
    retime: Callable[..., Int64s] | None = None
    read: Callable[[Source, Settings], Sequence[Any]] | None = None
    measured: tuple[str, ...] = ()
    requests_of: Callable[[Path], Path] | None = None

    def is_beside(self, path: Path) -> bool:
        """Whether a file is read together with the list of its requests, which is there."""
        return self.requests_of is not None and self.requests_of(path).is_file()

    @property
    def notes(self) -> str:
        """Further remarks for users."""
        texts = (function.__doc__ or "" for function in (self.rows, self.read) if function)
        return " ".join(word for text in texts for word in text.split())

    def detects(self, file: Head, content: Content) -> bool:
        """Whether a file is of the format, and gives this."""
        if self.detect is not None:
            return self.detect(file)  # type: ignore[arg-type]
        return bool(self.required) and not self.missing(self.columns_of(file, content), content)

    def columns_of(self, file: Head, content: Content) -> Collection[str]:
        """The columns of a file, as far as they can be those of the format.

        A trace in CSV may also be JSON objects with the same keys.
        """
        found = file.columns[self.layout]
        is_trace = content == "trace" and self.layout == "csv"
        return file.columns["jsonl"] if is_trace and not found else found

    def missing(self, columns: Collection[str], content: Content = "trace") -> list[str]:
        """Return the columns that are needed and not among these."""
        needed = self.required if content == "trace" else (*self.required, *self.measured)
        return [name for name in needed if name not in columns]

    def check_columns(
        self, columns: Collection[str], place: str, content: Content = "trace"
    ) -> None:
        """Raise TraceError if a column is missing; `place`: file, or file and line."""
        if missing := self.missing(columns, content):
            self.refuse(place, f": {', '.join(missing)} missing")

    def refuse(self, place: str, why: str = "") -> NoReturn:
        """Raise the TraceError of a file of another format."""
        raise TraceError(f"{place}: not of the format {self.name}{why} ({self.doc})")
