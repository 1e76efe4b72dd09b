"""Sessions and shared prefixes of a trace, as users of a closed loop."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from spillway._core.sim import UsageError
from spillway._core.workload import Client, ClosedLoop, Poisson, Synthetic
from spillway.config.extras import require
from spillway.config.progress import reporting
from spillway.traffic import laws
from spillway.traffic.generation import generated
from spillway.traffic.replication import applied_columns
from spillway.traffic.trace_statistics import (
    Check,
    Compared,
    Requests,
    check_resamples,
    column_note,
    compare,
    failure_note,
    rank_correlation,
    requests_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure

    from spillway._core.workload import Trace
    from spillway.config.progress import Remarks
    from spillway.data.arrays import Booleans, Floats, Ints


_COMMON_SHARE = 0.01  # of all requests that begin alike: a shared prefix, not a conversation
_COMMON_REQUESTS = 50
_MOST_GROUPS = 64
_FEWEST_OF_CLIENT = 20  # sessions
_FEWEST_USERS = 1
_TURNS = 5
_SHARES = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
_REGULAR_CV = 0.1

TITLES = {
    "turns": "share of the requests by their turn",
    "input_by_turn": "mean prompt by turn",
    "reused": "share of prompt tokens that begin an earlier prompt",
    "think_s": "think times",
}
"""The compared statistics in words, by name."""

_PLACES = {
    "turns": " at turn {:.0f}",
    "input_by_turn": " at turn {:.0f}, in tokens",
    "reused": "",
    "think_s": " at their {:.0%} quantile, in s",
}


@dataclass(frozen=True)
class Structure:
    """Which requests continue which, and what prompts share, in order of arrival.

    Attributes
    ----------
    previous : array
        The request that a request continues: it begins with the whole prompt (up to a partial
        block) of that one, which no other has continued. -1: it begins a session.
    turn : array
        Position in its session, from 0.
    group : array
        The longest beginning that at least 50 requests, and 1 % of all, have in common; -1: none.
    group_tokens : array
        Its length by number of the group.
    shared_tokens : array
        Length of the longest beginning that an earlier prompt has too.
    block_tokens : int
        The resolution of what is shared.
    """

    previous: Ints
    turn: Ints
    group: Ints
    group_tokens: Ints
    shared_tokens: Ints
    block_tokens: int


def structure_of(columns: dict[str, Any]) -> Structure:
    """The structure of the columns of a trace; see `Structure`."""
    begin = columns["segment_begin"].astype(np.int64).tolist()
    content = columns["segment_content"].tolist()
    tokens = columns["segment_tokens"].tolist()
    prompt = columns["input_tokens"].tolist()
    number = len(prompt)
    sums = np.append(0, np.cumsum(columns["segment_tokens"], dtype=np.int64))
    is_whole = (sums[begin[1:]] - sums[begin[:-1]] >= columns["input_tokens"]).tolist()
    answers = columns.get("answer", np.zeros(number, np.uint64)).tolist()
    answered = {part: row for row, part in enumerate(answers) if part}
    # Prefix groups and parts of conversations have any length.
    block = max(tokens) if any(is_whole) and not answered else 1
    # The tree of prompts: nodes are beginnings.
    nodes: dict[tuple[int, int], int] = {}
    depth_tokens, visits = [0], [number]
    ends: dict[int, int] = {}  # node → latest request whose whole prompt it is
    candidates: list[list[tuple[int, int]]] = []  # of earlier requests: node, request
    paths: list[list[int]] = []
    shared = np.zeros(number, dtype=np.int64)
    for i in range(number):
        node, path, found = 0, [], []
        pieces = range(begin[i], begin[i + 1])
        for at in pieces:
            known = nodes.get((node, content[at]))
            if known is None:
                known = nodes[node, content[at]] = len(visits)
                depth_tokens.append(depth_tokens[node] + tokens[at])
                visits.append(0)
            else:
                shared[i] = min(depth_tokens[known], prompt[i])
            node = known
            visits[node] += 1
            path.append(node)
            if node in ends and at + 1 < begin[i + 1]:
                found.append((node, ends[node]))
        candidates.append(found)
        paths.append(path)
        whole = path if answered or tokens[begin[i + 1] - 1] == block else path[:-1]
        if is_whole[i] and whole:
            ends[whole[-1]] = i
    least = max(_COMMON_REQUESTS, math.ceil(_COMMON_SHARE * number))
    previous = np.full(number, -1, dtype=np.int64)
    turn = np.zeros(number, dtype=np.int64)
    common = np.full(number, 0, dtype=np.int64)
    continued: set[int] = set()
    for i in range(number):
        common[i] = max((node for node in paths[i] if visits[node] >= least), default=0)
        for node, other in reversed(candidates[i]):
            if visits[node] < least and other not in continued:
                previous[i], turn[i] = other, turn[other] + 1
                continued.add(other)
                break
    beginnings, group = np.unique(common, return_inverse=True)
    lengths = np.array([depth_tokens[node] for node in beginnings.tolist()], dtype=np.int64)
    if len(beginnings) and beginnings[0] == 0:
        group, lengths = group - 1, lengths[1:]
    return Structure(previous, turn, group, lengths, shared, block)


@dataclass(frozen=True)
class PrefixGroup:
    """Prompts that begin alike.

    Attributes
    ----------
    tokens : int
        Length of the common beginning.
    sessions : int
        Sessions of the trace that begin with it.
    """

    tokens: int
    sessions: int


@dataclass(frozen=True)
class SessionFit(Compared):
    """Users fitted to the sessions of a trace; see `fit_sessions`.

    Attributes
    ----------
    workload : workload.Synthetic
        A closed-loop client per tenant, class, prefix group and number of turns.
    sessions, requests : int
        Those of the trace; a request that continues none is a session of one turn.
    think_s : float
        Mean think time in the trace: the gap between turns without the assumed answer. NaN if no
        session has two turns.
    groups : tuple of PrefixGroup
        The shared prefixes, the most common first.
    zipf_exponent : float
        Exponent s of the popularity of the groups, rank**-s, by maximum likelihood; NaN for fewer
        than three groups.
    reused_share : float
        Share of all prompt tokens of the trace that begin an earlier prompt: what an infinite
        prefix cache saves.
    generated_reused_share : float
        The same of the generator, median over the generated traces.
    checks : tuple of Check
        Statistics of the trace against those of generated traces, by the names in `TITLES`.
    notes : tuple of str
        What the generator cannot reproduce.
    """

    workload: Synthetic
    sessions: int
    requests: int
    think_s: float
    groups: tuple[PrefixGroup, ...]
    zipf_exponent: float
    reused_share: float
    generated_reused_share: float
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """The users, and where they differ from the trace, as lines of text."""
        lines = [
            f"{self.sessions:,} sessions, {self.requests / self.sessions:.2f} turns on average"
        ]
        if math.isfinite(self.think_s):
            lines.append(f"think time: {self.think_s:.3g} s on average")
        if self.groups:
            tokens = [group.tokens for group in self.groups]
            line = (
                f"{len(self.groups)} shared prefixes of {min(tokens):,} to {max(tokens):,} tokens"
            )
            if math.isfinite(self.zipf_exponent):
                line += f", popularity rank^-{self.zipf_exponent:.2f}"
            lines.append(line)
        for client in self.workload.clients:
            loop = _loop(client)
            prefix = f", prefix of {client.prefix_tokens:,}" if client.prefix_group else ""
            lines.append(
                f"  {client.name}: {loop.users:,} users, {loop.turns} turns, thinking "
                f"{loop.think_time_s:.3g} s{prefix}"
            )
        lines.append(
            f"prompt tokens that begin an earlier prompt: trace {self.reused_share:.1%}, "
            f"generator {self.generated_reused_share:.1%}"
        )
        lines += [
            f"{'DIFFERS' if check.is_bad else 'reproduced'}: {TITLES[check.name]}"
            f"{check.worst(_PLACES) if check.is_bad else ''} (p = {check.p_value:.2g})"
            for check in self.checks
        ]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def plot(self) -> Figure:
        """A figure with a panel per check: the trace as a line, the generator as a band of 95 %.

        Raises ImportError without matplotlib (extra `plot`).
        """
        from spillway.traffic.fit_plots import session_figure

        return session_figure(self.checks, TITLES)


def _loop(client: Client) -> ClosedLoop:
    return cast("ClosedLoop", client.arrivals)


def fit_sessions(
    trace: Trace,
    *,
    ttft_s: float = 0.0,
    tpot_s: float = 0.0,
    resamples: int = 199,
    seed: int = 0,
    progress: Remarks = False,
) -> SessionFit:
    """Fits users that wait for answers to the sessions and shared prefixes of a trace.

    The prompts show which requests belong together: a turn begins with the whole prompt of the one
    before (see `Structure`). Every tenant, class, prefix group and number of turns becomes a client
    in closed loop, with the length distributions of what its turns add (see `fit`). Its users and
    think time give the rate of the trace if answers take as long as assumed here. Checks compare
    the trace with generated ones, as those of `fit` do.

    A client has one number of turns, one distribution of what turns add, first or later, and one
    think time, also between sessions. The load follows the service and has no rate over time.

    Parameters
    ----------
    trace
        At least 100 requests with shared segments: `hash_ids` or prefix groups.
    ttft_s, tpot_s
        Assumed seconds from a turn to its first token, and per further token, of the system that
        the trace recorded. What remains of the gap to the next turn is think time. 0 if the gaps
        are think times already, as in AIPerf's sessions read with their default options.
    resamples
        Number of generated traces, >= 199: p-values are multiples of 1 / (resamples + 1).
    seed
        Seed of the first generated trace; the others follow.
    progress
        True: show how far it is, as for `simulate`. A function is called with a line of text now
        and then.

    Raises UsageError for a trace that is too short or whose prompts share nothing, ConfigError for
    invalid arguments, and ImportError without SciPy (extra `study`).
    """
    _check(ttft_s, tpot_s, resamples, seed)
    requests = requests_of(trace)
    columns = applied_columns(trace)
    # Requests of one instant are not spread: that would blur think times.
    requests = replace(requests, arrival_s=columns["arrival_ns"] / 1e9)
    if len(columns["segment_content"]) == 0:
        raise UsageError(
            "the prompts of the trace share nothing that it states: no hash ids, no prefix groups"
        )
    with reporting(progress, "compared traces", tells=True) as report:
        if report is not None:
            remark = f"finding the sessions of {len(requests.arrival_s):,} requests"
            report(0, resamples, remark)
        structure = structure_of(columns)
        observed = _Observed.of(requests, structure, ttft_s, tpot_s)
        workload, counts = _workload(observed)
        samples = []
        for i in range(resamples):
            if report is not None:
                report(i, resamples, f"comparing with {resamples} generated traces")
            samples.append(_statistics_of(workload, counts, observed, seed + i))
    grids = {
        "turns": np.arange(1, _TURNS + 2).astype(float),
        "input_by_turn": np.arange(1, observed.turns + 1).astype(float),
        "reused": np.zeros(1),
        "think_s": _SHARES,
    }
    checks = compare(grids, observed.statistics(), samples)
    groups = tuple(
        PrefixGroup(int(structure.group_tokens[code]), number)
        for code, number in observed.popularity
    )
    reused = next(check for check in checks if check.name == "reused")
    return SessionFit(
        workload=workload,
        sessions=int((structure.turn == 0).sum()),
        requests=len(structure.turn),
        think_s=float(observed.think_s.mean()) if observed.think_s.size else math.nan,
        groups=groups,
        zipf_exponent=_zipf(np.array([group.sessions for group in groups])),
        reused_share=float(reused.trace[0]),
        generated_reused_share=float(reused.middle[0]),
        checks=checks,
        notes=_notes(observed),
    )


def _check(ttft_s: float, tpot_s: float, resamples: int, seed: int) -> None:
    violations = [
        (name, f"{value!r:.40}", "must be finite and >= 0")
        for name, value in (("ttft_s", ttft_s), ("tpot_s", tpot_s))
        if not (math.isfinite(value) and value >= 0)
    ]
    check_resamples(violations, resamples, seed)


@dataclass(frozen=True)
class _Observed:
    """What the trace shows."""

    requests: Requests
    structure: Structure
    length_s: float
    session: Ints  # of each request: the first request of its session
    answer_s: Floats
    think_s: Floats  # of the turns after the first, in order of arrival
    added_tokens: Ints  # of each request: what its turn adds to prefix and conversation
    cut_share: float  # of later turns whose prompt is shorter than the conversation before
    cut_thinks: float  # of think times that would be negative
    popularity: list[tuple[int, int]]  # groups by number of sessions: code, number

    @classmethod
    def of(
        cls, requests: Requests, structure: Structure, ttft_s: float, tpot_s: float
    ) -> _Observed:
        number = len(structure.turn)
        session = np.arange(number)
        for i in np.flatnonzero(structure.previous >= 0):  # ascending
            session[i] = session[structure.previous[i]]
        prompt, output = requests.input_tokens, requests.output_tokens
        later = np.flatnonzero(structure.previous >= 0)
        before = structure.previous[later]
        answer_s = ttft_s + tpot_s * np.maximum(output - 1, 0)
        think_s = requests.arrival_s[later] - requests.arrival_s[before] - answer_s[before]
        added = prompt.copy()
        grouped = (structure.turn == 0) & (structure.group >= 0)
        added[grouped] -= structure.group_tokens[structure.group[grouped]]
        added[later] = prompt[later] - prompt[before] - output[before]
        groups = Counter(np.sort(structure.group[grouped]).tolist())
        span_s = float(requests.arrival_s[-1] - requests.arrival_s[0])
        return cls(
            requests=requests,
            structure=structure,
            length_s=span_s * number / (number - 1),
            session=session,
            answer_s=answer_s,
            think_s=np.maximum(think_s, 0.0),
            added_tokens=np.maximum(added, 1),
            cut_share=float((added[later] < 1).mean()) if len(later) else 0.0,
            cut_thinks=float((think_s < 0).mean()) if len(later) else 0.0,
            popularity=groups.most_common(),
        )

    @property
    def turns(self) -> int:
        """The turns whose prompts are compared."""
        return int(min(self.structure.turn.max() + 1, _TURNS))

    def statistics(self) -> dict[str, Floats]:
        """The compared statistics of the trace."""
        structure, prompt = self.structure, self.requests.input_tokens
        found = _statistics(structure.turn, prompt, structure.shared_tokens, self.turns)
        if self.think_s.size:
            found["think_s"] = np.quantile(self.think_s, _SHARES)
        return found


def _statistics(turn: Ints, prompt: Ints, shared: Ints, turns: int) -> dict[str, Floats]:
    counts = np.bincount(np.minimum(turn, _TURNS), minlength=_TURNS + 1)
    sums = np.bincount(np.minimum(turn, _TURNS), weights=prompt, minlength=_TURNS + 1)
    return {
        "turns": counts / len(turn),
        "input_by_turn": (sums / np.maximum(counts, 1))[:turns],
        "reused": np.array([shared.sum() / prompt.sum()]),
    }


def _workload(observed: _Observed) -> tuple[Synthetic, list[int]]:
    """The users, and the number of sessions of each client in a trace of the same length."""
    structure, requests = observed.structure, observed.requests
    starts = np.flatnonzero(structure.turn == 0)
    turns = np.bincount(observed.session, minlength=len(structure.turn))[starts]
    large = {code for code, _ in observed.popularity[:_MOST_GROUPS]}
    group = np.array([code if code in large else -1 for code in structure.group[starts].tolist()])
    think_s = float(observed.think_s.mean()) if observed.think_s.size else None
    clients: list[Client] = []
    counts: list[int] = []
    for code, names in enumerate(requests.names):
        for prefix_code in sorted(set(group[requests.client[starts] == code].tolist())):
            rows = np.flatnonzero((requests.client[starts] == code) & (group == prefix_code))
            whose: dict[str, Any] = {"tenant": names[0], "slo_class": names[1]}
            path = list(names)
            if prefix_code >= 0:
                path.append(f"prefix-{prefix_code}")
                tokens = int(structure.group_tokens[prefix_code])
                whose |= {"prefix_group": path[-1], "prefix_tokens": tokens}
            for part in _classes(turns[rows], observed.length_s, think_s):
                client, sessions = _client(observed, starts[rows[part]], turns[rows[part]], think_s)
                name = "/".join([*path, f"{client['arrivals'].turns}-turns"])
                clients.append(Client(name=name, **whose, **client))
                counts.append(sessions)
    return Synthetic(duration_s=observed.length_s, clients=clients), counts


def _classes(turns: Ints, length_s: float, think_s: float | None) -> Iterable[Booleans]:
    """Sessions of similar numbers of turns, each class with several users."""
    edges = [1, 2, 3, 4, 6, 11, 21]
    found: list[Booleans] = []
    waiting = np.zeros(len(turns), dtype=bool)
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        waiting |= (turns >= low) & (turns < high)
        users = turns[waiting].sum() * (think_s or 0.0) / length_s
        if waiting.sum() >= _FEWEST_OF_CLIENT and (think_s is None or users >= _FEWEST_USERS):
            found.append(waiting)
            waiting = np.zeros(len(turns), dtype=bool)
    if waiting.any():
        found.append(found.pop() | waiting if found else waiting)
    return found


def _client(
    observed: _Observed, starts: Ints, turns: Ints, think_s: float | None
) -> tuple[dict[str, Any], int]:
    """The settings of a client, and the number of its sessions."""
    requests = observed.requests
    rows = np.flatnonzero(np.isin(observed.session, starts))
    number = max(round(float(turns.mean())), 1)
    sessions = max(round(len(rows) / number), 1)
    rate = sessions * number / observed.length_s
    answer_s = float(observed.answer_s[rows].mean())
    cycle_s = answer_s + (think_s if think_s is not None else 1 / rate)
    users = max(round(rate * cycle_s), 1)
    regular = observed.think_s.size > 1 and (
        observed.think_s.std() < _REGULAR_CV * observed.think_s.mean()
    )
    added, output = observed.added_tokens[rows], requests.output_tokens[rows]
    loop = ClosedLoop(
        users=users,
        turns=number,
        think_time_s=max(users / rate - answer_s, 0.0),
        think_time="constant" if regular else "exponential",
    )
    return {
        "arrivals": loop,
        "input_tokens": laws.fitted(added).lengths,
        "output_tokens": laws.fitted(output).lengths,
        "length_correlation": round(rank_correlation(added, output), 4),
    }, sessions


def _statistics_of(
    workload: Synthetic, counts: list[int], observed: _Observed, seed: int
) -> dict[str, Floats]:
    """The statistics of a trace that the users send if answers take as long as assumed."""
    open_loop: dict[str, Any] = {"arrivals": Poisson(), "requests_per_s": 1.0}
    open_loop |= {"prefix_group": "", "prefix_tokens": 0}
    clients = []
    for k, (client, sessions) in enumerate(zip(workload.clients, counts, strict=True)):
        number = sessions * _loop(client).turns
        clients.append(client.replace(name=f"{k}", tenant=f"{k}", num_requests=number, **open_loop))
    columns = generated(Synthetic(clients=clients), seed)._columns()
    code = {name: k for k, name in enumerate(columns["tenants"])}
    rng = np.random.Generator(np.random.Philox(seed))
    parts, think_s = [], []
    block = observed.structure.block_tokens
    seen: set[str] = set()
    for k, (client, sessions) in enumerate(zip(workload.clients, counts, strict=True)):
        rows = columns["tenant"] == code[f"{k}"]
        loop = _loop(client)
        shape = (sessions, loop.turns)
        added = columns["input_tokens"][rows].astype(np.int64).reshape(shape)
        output = columns["output_tokens"][rows].astype(np.int64).reshape(shape)
        whole = client.prefix_tokens + np.cumsum(added, 1)
        whole[:, 1:] += np.cumsum(output, 1)[:, :-1]
        again = np.zeros(shape, dtype=np.int64)
        again[:, 0] = client.prefix_tokens // block * block
        if client.prefix_group and client.prefix_group not in seen:
            seen.add(client.prefix_group)
            again[0, 0] = 0
        again[:, 1:] = whole[:, :-1] // block * block
        turn = np.broadcast_to(np.arange(shape[1]), shape)
        parts.append((turn.ravel(), whole.ravel(), again.ravel()))
        later = sessions * (shape[1] - 1)
        think_s.append(
            rng.exponential(loop.think_time_s, later)
            if loop.think_time == "exponential"
            else np.full(later, loop.think_time_s)
        )
    turns, prompts, shared = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = _statistics(turns, prompts, shared, observed.turns)
    thinks = np.concatenate(think_s)
    if observed.think_s.size:
        found["think_s"] = np.quantile(thinks, _SHARES) if thinks.size else np.zeros(len(_SHARES))
    return found


def _zipf(counts: Ints) -> float:
    """The exponent of largest likelihood of counts in descending order."""
    if len(counts) < 3:
        return math.nan
    logs = np.log(np.arange(1, len(counts) + 1))

    def cost(exponent: float) -> float:
        scale = float(np.exp(-exponent * logs).sum())
        return float(exponent * (counts * logs).sum() + counts.sum() * math.log(scale))

    minimize = require("scipy.optimize", "study").minimize_scalar
    return float(minimize(cost, bounds=(0, 10), method="bounded").x)


def _notes(observed: _Observed) -> tuple[str, ...]:
    notes = []
    if not observed.think_s.size:
        notes.append("no request continues another: every session has one turn")
    else:
        first = float(observed.added_tokens[observed.structure.turn == 0].mean())
        later = float(observed.added_tokens[observed.structure.turn > 0].mean())
        if max(first, later) > 1.25 * min(first, later):
            notes.append(
                f"first turns bring {first:,.0f} tokens on average, later ones add {later:,.0f}; "
                "all turns of a user have one distribution, so that prompts are "
                f"{'too short' if first > later else 'too long'} in first turns and caches find "
                f"{'less' if first > later else 'more'} than in the trace"
            )
    if observed.cut_share > 0.05:
        notes.append(
            f"{observed.cut_share:.0%} of the later turns have prompts shorter than the "
            "conversation before them, which users cannot have: their turns add one token"
        )
    if observed.cut_thinks > 0.05:
        notes.append(
            f"{observed.cut_thinks:.0%} of the later turns come before the assumed answer: "
            "ttft_s or tpot_s is too large, or the turns do not wait"
        )
    if len(observed.popularity) > _MOST_GROUPS:
        rest = sum(number for _, number in observed.popularity[_MOST_GROUPS:])
        notes.append(
            f"only the {_MOST_GROUPS} most common prefixes are kept; {rest} sessions have others"
        )
    if observed.requests.spread_s is not None:
        notes.append(
            f"many timestamps are equal, as if rounded to about {observed.requests.spread_s:.3g} s"
        )
    if observed.requests.failed:
        notes.append(failure_note(observed.requests.failed, len(observed.requests.arrival_s)))
    if observed.requests.not_generated:
        notes.append(column_note(observed.requests.not_generated))
    return tuple(notes)
