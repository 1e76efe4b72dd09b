"""Results: the data of runs with its analyses, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._core.sim import ConfigError, UsageError
from spillway.data.replications import Replications
from spillway.data.result_data import ResultData

# Each method imports the module that it uses: most scripts need only a few of them.
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from spillway._core.cluster import Simulation
    from spillway.analysis.causes import TimeByCause
    from spillway.analysis.group_age import AdmissionByGroupAge
    from spillway.analysis.recovery import Recovery
    from spillway.analysis.regret import AdmissionRegret
    from spillway.analysis.stationarity import Saturation
    from spillway.analysis.steady_state import SteadyState
    from spillway.data.figures import Groups
    from spillway.findings.explanation import Explanation
    from spillway.findings.finding import Finding
    from spillway.findings.why import Why
    from spillway.report.plots import Plots
    from spillway.systems.dynamo.counters import Version

__all__ = ["Result", "Results"]


class Result(ResultData):
    """One run: the outcome and latencies of every request, and the figures over all of them.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> result = spillway.simulate(simulation)
    >>> result.summary()["offered"], result.ledger["completed"]
    (300, 300)
    >>> result.requests["ttft_s"].shape
    (300,)
    """

    def __init__(self, simulation: Simulation, seed: int, output: Mapping[str, Any]) -> None:
        super().__init__(simulation, seed, output)
        self._regret: AdmissionRegret | None = None
        self._causes: TimeByCause | None = None

    def admission_regret(self) -> AdmissionRegret:
        """What becomes of each rejected request on an idle fleet, and if all are admitted.

        If all are admitted: the same simulation and seed with admission
        always_admit, and the same requests under common random numbers. A request that meets its
        targets there was rejected without need (`regrettable` in the summary); where most miss
        them, the rejections took only load that the fleet could not have served in time. Queue
        bounds, limits and refusals of servers still act in that run. It takes as long as the run
        itself.

        On an idle fleet: the rejected requests again, too far apart to overlap, on one instance
        of each group that is idle, has an empty cache and has an open ingress. The gateway
        contributes only its latencies (admission, drain, routing): there is no admission policy,
        queue bound, limit, client timeout, retry, change of the fleet or horizon. The latencies of
        the group with the shortest time to first token count. With `jittered` step times every
        request draws its own factors under the seed of the run, in row order. Nearly every request
        meets its targets there; one that does not was hopeless under any policy.

        Raises UsageError if the requests were not kept (see `requests`), if the result was saved by
        a version that did not save the requested output lengths and prefix groups, or if one of n
        rejected requests takes longer than 3.2e9 / (n + 1) s, which exceeds the range of the clock.
        """
        if self._regret is None:
            from spillway.analysis.regret import admission_regret

            self._regret = admission_regret(self)
        return self._regret

    def by(self, column: str) -> Groups:
        """Figures of the requests with each value of a column of `requests`.

        For example `by("attribute.user")` with a trace that has this column, `by("instance")`, or
        `by("max_tokens")`. Keys are the values as text; the figures are those of `summary` that do
        not depend on the duration of a run, without gaps between tokens. For classes and tenants,
        `by_class` and `by_tenant` have all figures, also of streaming runs.

        Raises UsageError if the requests were not kept, or if there is no such column, or it has
        fractions or more than 10,000 values.
        """
        from spillway.analysis.by_column import figures_by

        return figures_by(self, column)

    def recovery(
        self, start_s: float, end_s: float, *, step_s: float = 1.0, share: float = 0.9
    ) -> Recovery:
        """Whether the system recovers after a trigger that lasts from `start_s` to `end_s`.

        Goodput is measured over the requests that arrive in a step: `step_s`, or a multiple of it
        that holds at least 20 requests. The reference is the time between `warm_up_s` and the
        trigger. A step is outside the band if its goodput is below `share` of the reference and
        significantly lower: Fisher's exact test against the reference, at a level of 1% for all
        steps together, in which the variance between the steps of the reference corrects for
        requests that are late together. A single step outside the band long after the trigger does
        not count, because requests are late in bursts. The system has recovered at the end of the
        last step that counts, provided that the rest of the run, taken as one step, is within the
        band and better than the steps outside it. Longer steps show smaller losses; shorter steps
        show more exactly when the losses end.

        Requests that are unfinished at the end of the run and could still meet their targets do not
        count.

        Raises UsageError if the requests were not kept, none is of a class with latency targets,
        fewer than 20 arrive before the trigger or none after it, or unless `warm_up_s` < `start_s`
        < `end_s`, `step_s` > 0 and 0 < `share` <= 1.
        """
        from spillway.analysis.recovery import recovery

        return recovery(self, start_s, end_s, step_s=step_s, share=share)

    def saturation(self) -> Saturation:
        """Whether the system keeps up with its load after the warm-up.

        The requests in the system are counted at each arrival. The verdict is "unsaturated",
        "transient", "saturated" or "undecided", with the drift of that number in requests/s, its
        95% interval and the span. A gateway that rejects the excess keeps the system unsaturated.

        On M/M/c with c = 1 and 8, "saturated" is false in fewer than 5% of runs at a load of at
        most 0.9, and found in at least 95% of runs of 40,000 arrivals at a load of 1.05;
        "unsaturated" is false in fewer than 5% of runs at a load of 1.05. At a load of 0.5 a run of
        1,000 arrivals suffices for a verdict, at 0.9 one of 10,000. With fewer than 300 arrivals
        the verdict is "undecided".

        Raises UsageError if the requests were not kept (see `requests`).
        """
        from spillway.analysis.stationarity import saturation

        return saturation(self)

    def steady_state(
        self,
        figure: str = "ttft_s",
        percentile: float | None = None,
        *,
        warm_up_s: float | None = None,
        confidence: float = 0.95,
    ) -> SteadyState:
        """A figure of this one run with its interval, as it would be in a run without end.

        The interval is that of batch means over ten consecutive batches, a percentile's that of
        sectioning. A run has none, for the `reason` that it states, if

        - its batches are shorter than 150 times the span over which its requests depend on each
          other, or it has fewer than 100 times as many requests as are in the system at once;
        - the fleet is near saturation: the number of requests in the system varies as at a
          utilization of 70% or more. Bad episodes are rare there, and a run without one looks
          better than it is, and certain: run several seeds;
        - all batches have the same value, e.g. a goodput of 1: nothing shows how it varies.

        Parameters
        ----------
        figure
            goodput, or a latency: ttft_s, e2e_s, tpot_s, queue_s, scheduling_delay_s, itl_mean_s.
        percentile
            Of a latency, > 0 and < 100; None: the mean.
        warm_up_s
            Arrivals before this time are left out; None: by MSER-5, which the result states.
        confidence
            Of the interval.

        Raises
        ------
        ConfigError
            For an unknown figure, a percentile or a confidence out of its range.
        UsageError
            If no request has the figure after the warm-up, or requests were not kept.

        """
        from spillway.analysis.steady_state import steady_state

        return steady_state(self, figure, percentile, warm_up_s=warm_up_s, confidence=confidence)

    def admission_by_group_age(self, step_s: float, new_for_s: float = 60) -> AdmissionByGroupAge:
        """Admitted requests of new and of established prefix groups over time.

        A prefix group comprises the requests whose prompts begin with the same shared segment; it
        is new for the first `new_for_s` seconds after its first request. Requests that share
        nothing count in neither. Each row covers `step_s` seconds; intervals in which no request of
        a group arrives have no row.

        Raises UsageError if the requests were not kept (see `requests`), or if the result was saved
        by a version that did not save the prefix groups of its requests.
        """
        from spillway.analysis.group_age import admission_by_group_age

        return admission_by_group_age(self, step_s, new_for_s)

    def time_by_cause(self) -> TimeByCause:
        """What the requests spent their time on: causes that add up to their latencies.

        The run is repeated with a log of its steps, and must have the same outcome. That takes
        as long as the reference (`simulate(reference=True)`), and memory for every step.

        Raises UsageError if the requests were not kept, latencies are not times between events
        (`metrics.accounting: blis`), or the run cannot be repeated; ConfigError if it has a policy
        in Python that was not imported.
        """
        if self._causes is None:
            from spillway.analysis.causes import time_by_cause

            self._causes = time_by_cause(self)
        return self._causes

    def explain(self) -> Explanation:
        """What is wrong with the run, what to try, and what its requests spent their time on.

        Where causes are unknown, a sentence says why (see `time_by_cause`). `spillway diagnose`
        prints it, and `spillway.diagnose` also tries the remedies.
        """
        from spillway.findings.explanation import Explanation

        try:
            causes: TimeByCause | str = self.time_by_cause()
        except (ConfigError, UsageError) as error:
            causes = str(error)
        return Explanation(tuple(self.findings()), causes)

    def why(self, request_id: str | int) -> Why:
        """Why a request took as long as it did, or was lost, as text with `save` and `to_dict`.

        Its causes in order, the requests on its server when it came, and what would have made it
        meet the targets of its class; for a lost request the settings that decided it, and the
        latencies that it would have seen on an idle fleet (see `admission_regret`). With
        `metrics.traced_candidates` also the alternatives of the router. A row (int) may replace the
        id.

        Raises KeyError if there is no such request, UsageError unless requests were kept.
        """
        from spillway.findings.why import why

        try:
            causes: TimeByCause | str = self.time_by_cause()
        except (ConfigError, UsageError) as error:
            causes = str(error)
        return why(self, request_id, causes, self.admission_regret)

    def counters(
        self, version: Version, *, model: str = "simulated", endpoint: str = "completions"
    ) -> dict[str, int]:
        """The figures at the end of the run under the names of Dynamo's metrics, with labels.

        `version`: "dynamo_1_2", "dynamo_1_3" (to 1.5), "dynamo_dev_b" or "dynamo_dev_c". `model`
        and `endpoint` are labels of the counter of rejections.
        `spillway_responses_total` is added: the responses by HTTP status.
        """
        from spillway.systems.dynamo.counters import counters

        return counters(self, version, model, endpoint)

    def vllm_bench(self, model: str = "simulated") -> dict[str, Any]:
        """The run in the schema of `vllm bench serve --save-result --save-detailed`.

        `model` is the `model_id` in it. A request that did not complete by the end of the run
        failed. Arrays are in seconds, statistics in milliseconds. A run records the mean gap
        between the tokens of a request: `itls` repeats it, and the statistics of single gaps are
        left out. Statistics cover all completed requests, also those of the warm-up.

        Raises UsageError if the requests were not kept (see `requests`).
        """
        from spillway.systems.vllm.result import vllm_bench

        return vllm_bench(self, model)

    def aiperf(self) -> dict[str, Any]:
        """The run in the schema of profile_export_aiperf.json of NVIDIA AIPerf, version 1.5.

        Latencies in milliseconds and lengths are statistics over completed requests, also those of
        the warm-up. `error_request_count` counts the requests that did not complete by the end of
        the run. `inter_token_latency` is the mean gap of each request, as AIPerf defines it.

        Raises UsageError if the requests were not kept (see `requests`).
        """
        from spillway.systems.aiperf.result import aiperf

        return aiperf(self)

    def benchmark_report(self) -> dict[str, Any]:
        """The run as a Benchmark Report v0.2 of llm-d-benchmark, which is also one of v0.2.1.

        Latencies in seconds, lengths and rates cover completed requests, also those of the warm-up.
        `failures` are requests that the system refused or dropped, `incomplete` those that the end
        of the run cut off. `scenario` holds the configuration. Single gaps between tokens are not
        recorded, so there is no `inter_token_latency`; simulated time has no date, so there is a
        duration but no start.

        Raises UsageError if the requests were not kept (see `requests`).
        """
        from spillway.systems.llm_d.result import benchmark_report

        return benchmark_report(self)

    def openmetrics(
        self,
        systems: Sequence[str] = ("vllm", "llm_d_epp", "dynamo"),
        *,
        model: str = "simulated",
        start_unix_s: float = 0.0,
    ) -> str:
        """The timeline as text of OpenMetrics 1.0, under names of vLLM, llm-d and Dynamo.

        `systems` chooses among "vllm", "llm_d_epp" and "dynamo", `model` is the label of the model,
        and the run starts at `start_unix_s`, in seconds since 1970. `promtool tsdb
        create-blocks-from openmetrics` imports the text into Prometheus, where dashboards of these
        systems draw it. The timeline is one of the whole fleet: requests are sums over the engines
        and shares of KV blocks are means, as if there were one engine.

        Raises UsageError unless `metrics.timeline_step_s` is set, ConfigError for an unknown system
        or a start that is negative or not finite.
        """
        from spillway.files.openmetrics import openmetrics

        return openmetrics(self, systems, model=model, start_unix_s=start_unix_s)

    def report(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes the result as one HTML file that a person reads from the top.

        A verdict in a sentence, headline figures against their targets, charts over time (values
        under the pointer, zoom by dragging, back by a double click), time by cause, findings with
        what to try, tenants and classes; the rest is folded. Charts of the limit and of KV memory
        need `metrics.timeline_step_s`. The file needs nothing else, follows the light or dark mode
        of the reader, and fits a phone. Causes take another run, as `time_by_cause` says; pictures
        need the extra `plot`, and both need requests that were kept.

        Raises ConfigError if the file cannot be written.
        """
        from spillway.analysis.causes import TimeByCause
        from spillway.config.formatting import number
        from spillway.findings.explanation import as_settings
        from spillway.report import page, panels

        explanation = self._explained()
        remarks = [
            page.Remark(
                finding.severity,
                str(finding),
                [
                    f"{number(known.value)} {known.figure}: {known.meaning}"
                    for known in finding.evidence
                ],
                [as_settings(remedy) for remedy in finding.remedies],
            )
            for finding in explanation.findings
        ]
        known = explanation.causes
        causes = known.rows() if isinstance(known, TimeByCause) else str(known)
        page.save(path, title or panels.name_of(self), page.result(self, remarks, causes))

    def _explained(self) -> Explanation:
        """The explanation, also of a run whose requests were not kept."""
        from spillway.findings.explanation import Explanation

        if self.has_requests:
            return self.explain()
        return Explanation(tuple(self.findings()), "the requests were not kept")

    @property
    def plot(self) -> Plots:
        """Figures of this result (extra `plot`)."""
        from spillway.report.plots import Plots

        return Plots(self)

    def findings(self) -> list[Finding]:
        """What is wrong with the run and its settings, the worst first.

        Each has a name, a severity (high, medium, low, info), a sentence, the figures that show it
        and the settings to try. `spillway.check` has those of the settings alone. Those of single
        requests are left out where the requests were not kept.
        """
        from spillway.findings import registry

        return registry.of_both(self)

    def notes(self) -> list[str]:
        """The findings about the run as sentences, the worst first."""
        from spillway.findings import registry

        return [finding.text for finding in registry.of_run(self)]

    def _shown(self) -> list[str]:
        from spillway.findings import finding, registry

        return finding.shown(registry.of_run(self))

    def __repr__(self) -> str:
        from spillway.config.formatting import without_keys
        from spillway.report import tables

        return without_keys(tables.result(self, self._shown()))

    def _repr_html_(self) -> str:
        from spillway.config.formatting import without_keys
        from spillway.report import page

        return without_keys(page.summary(self, self._shown()))

    def to_frame(self) -> pd.DataFrame:
        """The figures as a long pandas DataFrame (extra `frames`).

        One row per figure with a value, of all requests, each class and each tenant: by ("all",
        "slo_class", "tenant"), name, figure, value, low, high, n, unit, population, seed. Low and
        high are empty: one run has no interval. `attrs` holds schema, version, seeds, fingerprint.
        """
        from spillway.data import frames

        rows = frames.long_rows(self.summary(), self.by_class(), self.by_tenant())
        attrs = frames.provenance(seeds=[self.seed], fingerprint=self.fingerprint)
        return frames.frame(({**row, "seed": self.seed} for row in rows), attrs)

    def write(self, directory: str | Path, *, requests: str = "csv") -> None:
        """Writes summary.json and requests.csv (RFC 4180) into `directory`, created if missing.

        `requests`: "csv"; "parquet" for requests.parquet (extra `frames`); "vllm_bench" for
        vllm_bench.json (see `vllm_bench`); "aiperf" for profile_export_aiperf.json (see `aiperf`);
        "benchmark_report" for benchmark_report_v0.2.yaml (see `benchmark_report`). There is no file
        of requests if they were not kept (see `requests`).

        Raises ConfigError if `requests` is another format or the files cannot be written.
        """
        from spillway.files.export import write_result

        write_result(self, Path(directory), requests)


class Results(Replications[Result]):
    """Runs of one simulation under several seeds, in the order of the seeds.

    Where seeds change nothing there is one run for all of them, and figures have no interval.

    Examples
    --------
    >>> import spillway
    >>> simulation = spillway.Simulation(workload={"kind": "synthetic", "num_requests": 300})
    >>> results = spillway.simulate(simulation, seeds=[1, 2, 3])
    >>> results.summary()["completed"].mean
    300.0
    >>> results[0].seed
    1
    """

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """The means over the seeds as a long pandas DataFrame (extra `frames`).

        The columns of `Result.to_frame` without the seed; low and high are the ends of the
        interval, n the number of runs with a value.
        """
        from spillway.data import frames

        rows = frames.long_rows(
            self.summary(confidence), self.by_class(confidence), self.by_tenant(confidence)
        )
        fingerprint = self[0].fingerprint if self else ""
        return frames.frame(rows, frames.provenance(seeds=self.seeds, fingerprint=fingerprint))

    def write(
        self, directory: str | Path, *, requests: str | None = None, confidence: float = 0.95
    ) -> None:
        """Writes summary.csv, seeds.csv and summary.json into `directory`, created if missing.

        summary.csv has a row per mean with its interval, in the columns of `to_frame`; seeds.csv a
        row per figure of each seed; both end with version and fingerprint. summary.json has both,
        as `figures` and as the `runs` in the form of `Result.to_dict`, and the notes. Where seeds
        change nothing, there is one run for all of them.

        With `requests`, a format of `Result.write`, the folder seed_N also holds what
        `Result.write` writes of each run.

        Raises ConfigError if `requests` is another format or the files cannot be written,
        UsageError if there are no runs.
        """
        from spillway.files.export import write_results

        write_results(self, Path(directory), requests, confidence)

    @property
    def plot(self) -> Plots:
        """Figures of these results (extra `plot`); see `Plots` for what they show of the runs."""
        from spillway.report.plots import Plots

        return Plots(self)

    def __repr__(self) -> str:
        from spillway.report import tables

        return tables.results(self)

    def _repr_html_(self) -> str:
        from spillway.report import page, tables

        return page.tables(*tables.results_parts(self))
