"""Results as users meet them: what runs leave behind, with its analyses, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.data.replications import Replications
from spillway.data.result import ResultData

# Each reader of a result is imported by the method that asks for it: few of them are.
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway._core.cluster import Simulation
    from spillway.analysis.dynamo_counters import Version
    from spillway.analysis.group_age import AdmissionByGroupAge
    from spillway.analysis.recovery import Recovery
    from spillway.analysis.regret import AdmissionRegret
    from spillway.report.plots import Plots

__all__ = ["Result", "Results"]


def __dir__() -> list[str]:
    return __all__


class Result(ResultData):
    """One run: where every request went, what it met, and the figures over all of them."""

    def __init__(self, simulation: Simulation, seed: int, output: Mapping[str, Any]) -> None:
        super().__init__(simulation, seed, output)
        self._regret: AdmissionRegret | None = None

    def admission_regret(self) -> AdmissionRegret:
        """What each rejected request would have met on an idle fleet.

        Found by simulation: the rejected requests once more, too far apart to meet, on one instance
        of each group, which is idle, has nothing cached and has an open ingress. Of the gateway
        only its latencies remain (admission, drain, routing); there is no admission policy, queue
        bound, limit, client time-out, retry, schedule of the fleet or horizon. The latencies of the
        group with the shortest time to first token count. With `jittered` step times every request
        draws factors of its own under the seed of the run, in the order of the rows. A rejection of
        a request that would have met its class's targets on an idle fleet may still have been
        right: it protected those that were admitted.

        Raises UsageError if the requests were not kept (see `requests`), if the result was saved by
        a version that did not save what its requests asked for, or if one of n rejected requests
        takes longer than 3.2e9 / (n + 1) s, so that the clock does not reach far enough for all.
        """
        if self._regret is None:
            from spillway.analysis.regret import admission_regret

            self._regret = admission_regret(self)
        return self._regret

    def recovery(
        self, start_s: float, end_s: float, *, step_s: float = 1.0, share: float = 0.9
    ) -> Recovery:
        """Whether the system comes back from a trigger that lasted from `start_s` to `end_s`.

        Goodput is taken over the requests that arrive in a step: `step_s`, or as many of these as
        it takes to hold 20 requests. It has left the band of the time between `warm_up_s` and the
        trigger where it is below `share` of the goodput then, and lower than chance would have it:
        Fisher's exact test against that time, with requests that are late together counted as one
        (by the variance between its steps), at a level of 1 % for all steps together. A single such
        step long after the trigger does not count: requests are late in bursts. The system has
        recovered at the end of the last step that counts, provided that the rest of the run, taken
        as one step, is within the band and better than the steps that left it. Longer steps show
        smaller losses, shorter ones when they end.

        Requests that were under way at the end of the run and could still have met their targets do
        not count.

        Raises UsageError if the requests were not kept, none is of a class with latency targets,
        fewer than 20 arrive before the trigger or none after it, or unless `warm_up_s` < `start_s`
        < `end_s`, `step_s` > 0 and 0 < `share` <= 1.
        """
        from spillway.analysis.recovery import recovery

        return recovery(self, start_s, end_s, step_s=step_s, share=share)

    def admission_by_group_age(self, step_s: float, new_for_s: float = 60) -> AdmissionByGroupAge:
        """How many requests of new and of established prefix groups were admitted over time.

        A prefix group is the requests whose prompts begin with the same shared segment; it is new
        for the first `new_for_s` seconds from its first request on. Requests that share nothing
        count in neither. `step_s` is the length of a row's span of time in seconds.

        Raises UsageError if the requests were not kept (see `requests`), or if the result was saved
        by a version that did not save what its requests asked for.
        """
        from spillway.analysis.group_age import admission_by_group_age

        return admission_by_group_age(self, step_s, new_for_s)

    def why(self, request_id: str | int) -> str:
        """What became of a request, where it was sent and what the alternatives were, as text.

        Of a rejected request also what it would have met on an idle fleet, beside the targets of
        its class (see `admission_regret`). A row (int) may stand in place of the id.

        Raises KeyError if there is no such request, UsageError unless requests and decisions were
        kept.
        """
        from spillway.analysis.routing import explain

        return explain(self, request_id, self.admission_regret)

    def counters(self, version: Version) -> dict[str, int]:
        """The run's figures under the names of Dynamo's metrics at its end, with their labels.

        `version`: "dynamo_1_2", "dynamo_1_3" (to 1.5), "dynamo_dev_b" or "dynamo_dev_c". Beside
        them stands `spillway_responses_total`, by the HTTP status that clients were answered with.
        """
        from spillway.analysis.dynamo_counters import counters

        return counters(self, version)

    @property
    def plot(self) -> Plots:
        """Figures of this result (extra `plot`)."""
        from spillway.report.plots import Plots

        return Plots(self)

    def notes(self) -> list[str]:
        """What a reader ought to know, the most important first.

        Heavy shedding and the settings that decided it, classes without targets, mechanisms that
        never acted, small populations.
        """
        from spillway.report.notes import notes

        return notes(self)

    def __repr__(self) -> str:
        from spillway.report import tables

        return tables.result(self)

    def write(self, directory: str | Path) -> None:
        """Writes summary.json and requests.csv (RFC 4180) into `directory`, made if missing.

        Without requests.csv if the requests were not kept (see `requests`).
        """
        from spillway.data.export import write_result

        write_result(self, Path(directory))


class Results(Replications[Result]):
    """Runs of one simulation under several seeds, in the order of the seeds.

    Where seeds change nothing all of them are one run; then figures have no interval.
    """

    def __repr__(self) -> str:
        from spillway.report import tables

        return tables.results(self)
