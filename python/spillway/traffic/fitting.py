"""A generator fitted to a trace, and where the two differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway._core.workload import Client, Poisson, Synthetic
from spillway.config.progress import reporting
from spillway.traffic import laws, processes
from spillway.traffic.generation import generated
from spillway.traffic.trace_statistics import (
    TITLES,
    Check,
    Compared,
    Requests,
    Statistics,
    check_resamples,
    column_note,
    compare,
    failure_note,
    rank_correlation,
    requests_of,
    rounding_note,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from spillway._core.workload import Trace
    from spillway.config.progress import Remarks
    from spillway.data.arrays import Ints
    from spillway.traffic.laws import LengthFit


_FEWEST = 50
_PLACES = {
    "gaps_s": " at their {:.0%} quantile, in s",
    "requests_per_s": " at {:,.4g} s, in requests/s",
    "autocorrelation": " at lag {:.3g} s",
    "dispersion": " in windows of {:.3g} s",
    "input_tokens": " at their {:.0%} quantile, in tokens",
    "output_tokens": " at their {:.0%} quantile, in tokens",
    "length_correlation": "",
    "input_serial": " {:.0f} requests apart",
    "output_serial": " {:.0f} requests apart",
}


@dataclass(frozen=True)
class ClientFit:
    """The fit of one client: the requests of one tenant and class.

    Attributes
    ----------
    client : workload.Client
        The settings that generate such requests.
    requests : int
        Number of its requests in the trace.
    bic : dict
        Bayesian information criterion of the arrivals, by process, with the best rate profile for
        each; the smallest was chosen. Empty for fewer than 50 requests, which are taken as Poisson.
    input_tokens, output_tokens : LengthFit
        The length distributions.
    """

    client: Client
    requests: int
    bic: dict[str, float]
    input_tokens: LengthFit
    output_tokens: LengthFit

    def text(self) -> str:
        """The fit as lines of text."""
        client = self.client
        rate = f"{self.requests:,} requests, {client.requests_per_s:.4g}/s"
        lines = [f"{client.tenant} / {client.slo_class}: {rate}"]
        lines.append(f"  arrivals: {_arrivals(client)}")
        for name, found in (("input", self.input_tokens), ("output", self.output_tokens)):
            kept = found.lengths.kind != found.kind
            lines.append(
                f"  {name} tokens: {found.kind}, largest difference of the distribution functions "
                f"{found.ks:.3f}" + ("; poor, so quantiles of the trace are used" if kept else "")
            )
        lines.append(f"  rank correlation of lengths: {client.length_correlation:.2f}")
        return "\n".join(lines)


def _arrivals(client: Client) -> str:
    arrivals, rate = client.arrivals, client.requests_per_s or 0.0
    if arrivals.kind == "mmpp":
        text = "mmpp, " + " and ".join(
            f"{state.rate_factor * rate:.3g}/s for {state.mean_s:.3g} s"
            for state in arrivals.states
        )
    elif arrivals.kind == "hawkes":
        ratio, decay_s = arrivals.branching_ratio, arrivals.decay_s
        text = f"hawkes, branching ratio {ratio:.2f}, decay {decay_s:.3g} s"
    elif arrivals.kind == "gamma":
        text = f"gamma, coefficient of variation {arrivals.cv:.2f}"
    else:
        text = "poisson"
    if client.rate_profile:
        factors = [point.factor for point in client.rate_profile]
        low, high = min(factors), max(factors)
        text += f"; rate in {len(factors)} points, {low:.2f} to {high:.2f} of the mean"
    return text


@dataclass(frozen=True)
class Fit(Compared):
    """A generator fitted to a trace; see `fit`.

    Attributes
    ----------
    workload : workload.Synthetic
        Generates such traffic, for as long as the trace lasts: a client per tenant and class.
    clients : tuple of ClientFit
        The same order as `workload.clients`.
    checks : tuple of Check
        Statistics of the whole trace against those of generated traces.
    notes : tuple of str
        What the generator cannot reproduce, whatever the fit.
    """

    workload: Synthetic
    clients: tuple[ClientFit, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """The generator, and where it differs from the trace, as lines of text."""
        lines = [client.text() for client in self.clients]
        lines.append("")
        good = [check for check in self.checks if not check.is_bad]
        if good:
            titles = (f"{TITLES[check.name]} (p = {check.p_value:.2g})" for check in good)
            lines.append("reproduced: " + ", ".join(titles))
        lines += [f"DIFFERS: {_difference(check)}" for check in self.checks if check.is_bad]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def plot(self) -> Figure:
        """A figure of six panels: the trace as a line, the generator as a band of 95%.

        Gaps, rate over time, autocorrelation and dispersion of counts, and both lengths. Raises
        ImportError without matplotlib (extra `plot`).
        """
        from spillway.traffic.fit_plots import figure

        return figure(self.checks)


def _difference(check: Check) -> str:
    share = f"; outside at {check.outside.sum()} of {len(check.grid)} places"
    return (
        f"{TITLES[check.name]}{check.worst(_PLACES)}{share if len(check.grid) > 1 else ''} "
        f"(p = {check.p_value:.2g})"
    )


def fit(
    trace: Trace,
    *,
    arrivals: Sequence[str] = ("poisson", "gamma", "hawkes", "mmpp"),
    resamples: int = 199,
    seed: int = 0,
    progress: Remarks = False,
) -> Fit:
    """Fits a generator to a trace, and compares traces from it with the trace.

    Every tenant and class becomes a client. Its arrivals are one of several processes on the clock
    of a rate profile (constant, or up to 32 points; the hours of a day for traces of two days),
    fitted by maximum likelihood and chosen together by the Bayesian information criterion. Its
    lengths are chosen among lognormal, Gaussian, exponential, Pareto and uniform ones by the Akaike
    information criterion; where none comes within 0.05 of the distribution function, the
    generator draws from quantiles of the trace. Both lengths have the rank correlation of the
    trace.

    The checks are Monte Carlo tests: each statistic of the trace is compared with those of
    generated traces. In long traces, differences too small to matter are significant, so look at
    their size. The generator's parameters come from the same trace, which makes the tests lenient.

    Parameters
    ----------
    trace
        At least 100 requests, after its transforms.
    arrivals
        The processes to choose from, by the `kind` of their settings.
    resamples
        Number of generated traces, >= 199: p-values are multiples of 1 / (resamples + 1).
    seed
        Seed of the first generated trace; the others follow.
    progress
        True: show how far it is, as for `simulate`. A function is called with a line of text now
        and then.

    Returns
    -------
    Fit
        Takes about 10 s for 20,000 requests.

    Raises UsageError for a trace that is too short or holds no requests, ConfigError for invalid
    arguments, and ImportError without SciPy (extra `study`).
    """
    _check(arrivals, resamples, seed)
    requests = requests_of(trace)
    origin_s = float(requests.arrival_s[0])
    requests = replace(requests, arrival_s=requests.arrival_s - origin_s)
    number = len(requests.arrival_s)
    length_s = float(requests.arrival_s[-1]) * number / (number - 1)
    clients: list[ClientFit] = []
    with reporting(progress, "fitted clients", tells=True) as report:
        for code, (tenant, slo_class) in enumerate(requests.names):
            rows = np.flatnonzero(requests.client == code)
            if report is not None:
                remark = f"fitting {tenant} / {slo_class}: {len(rows):,} requests"
                report(len(clients), len(requests.names), remark)
            clients.append(_client(requests, rows, length_s, (tenant, slo_class), arrivals))
        synthetic = Synthetic(duration_s=length_s, clients=[fitted.client for fitted in clients])
        if report is not None:
            remark = f"comparing with {resamples} generated traces"
            report(len(clients), len(clients), remark)
        checks = _checks(requests, synthetic, length_s, resamples, seed)
    return Fit(synthetic, tuple(clients), checks, _notes(requests))


def _check(arrivals: Sequence[str], resamples: int, seed: int) -> None:
    violations = []
    allowed = "must be some of " + ", ".join(processes.PROCESSES)
    if isinstance(arrivals, str) or not arrivals:
        violations.append(("arrivals", repr(arrivals), allowed))
    else:
        violations += [
            (f"arrivals[{i}]", repr(process), allowed)
            for i, process in enumerate(arrivals)
            if process not in processes.PROCESSES
        ]
    check_resamples(violations, resamples, seed)


def _client(
    requests: Requests, rows: Ints, length_s: float, names: tuple[str, str], arrivals: Sequence[str]
) -> ClientFit:
    times = requests.arrival_s[rows]
    settings: dict[str, Any] = {"arrivals": Poisson()}
    bic: dict[str, float] = {}
    if len(rows) >= _FEWEST:
        found = processes.candidates(times, length_s, arrivals)
        best = found[0]
        settings = {
            "arrivals": best.arrivals,
            "rate_profile": best.profile.points,
            "rate_period_s": best.profile.period_s,
        }
        bic = {candidate.name: candidate.bic for candidate in reversed(found)}
    own_input, own_output = requests.input_tokens[rows], requests.output_tokens[rows]
    input_fit, output_fit = laws.fitted(own_input), laws.fitted(own_output)
    client = Client(
        name="/".join(names),
        tenant=names[0],
        slo_class=names[1],
        requests_per_s=len(rows) / length_s,
        input_tokens=input_fit.lengths,
        output_tokens=output_fit.lengths,
        length_correlation=round(rank_correlation(own_input, own_output), 4),
        **settings,
    )
    return ClientFit(client, len(rows), bic, input_fit, output_fit)


def _checks(
    requests: Requests, synthetic: Synthetic, length_s: float, resamples: int, seed: int
) -> tuple[Check, ...]:
    statistics = Statistics.of(requests, length_s)
    observed = statistics.values(requests.arrival_s, requests.input_tokens, requests.output_tokens)
    traces = (generated(synthetic, seed + i)._columns() for i in range(resamples))
    samples = [
        statistics.values(trace["arrival_ns"] / 1e9, trace["input_tokens"], trace["output_tokens"])
        for trace in traces
        if len(trace["arrival_ns"]) >= 2
    ]
    return compare(statistics.grids(), observed, samples)


def _notes(requests: Requests) -> tuple[str, ...]:
    notes = []
    if requests.reused > 0:
        notes.append(
            f"{requests.reused:.0%} of the prompt tokens of the trace were sent before by another "
            "request; the generator shares no prompts, so caches find nothing: replay the trace "
            "where prefix caching matters, or see fit_sessions (--sessions)"
        )
    if requests.spread_s is not None:
        notes.append(rounding_note(requests.spread_s))
    if requests.failed:
        notes.append(failure_note(requests.failed, len(requests.arrival_s)))
    if requests.not_generated:
        notes.append(column_note(requests.not_generated))
    if len(requests.names) > 1:
        notes.append("the clients are independent; the checks are of all together")
    return tuple(notes)
