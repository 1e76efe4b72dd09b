"""Failures of worker protection, each with its cure (Dynamo's rules)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.runs import run

from spillway import Result, Simulation, gateway, router, signals, simulate, workload
from spillway.config.profiles import BLIS_SERVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUSY = gateway.Gateway(admission=gateway.BusyThreshold())


# ---- P14: all or nothing -------------------------------------------------------------------------

PERIOD_S = 2.0


def overloaded(**changes: Any) -> Result:
    """Four workers at about twice their capacity, for a minute."""
    client = workload.Client(
        name="client",
        tenant="tenant",
        requests_per_s=300,
        duration_s=60,
        input_tokens=workload.Gaussian(
            mean_tokens=1000, std_dev_tokens=400, min_tokens=16, max_tokens=4000
        ),
        output_tokens=workload.Fixed(tokens=32),
    )
    simulation = Simulation(
        workload=workload.Synthetic(clients=[client], num_requests=None),
        gateway=BUSY,
        router=router.LeastLoaded(),
        instances=BLIS_SERVER.replace(count=4),
        signals=signals.Scraped(period_s=PERIOD_S),
        busy_monitor=signals.BusyMonitor(active_prefill_tokens_threshold=8000),
    )
    return simulate(simulation.with_(changes), 1)


def admitted_shares(result: Result) -> NDArray[np.float64]:
    """Per period of the scrapes, without the first."""
    requests = result.requests
    period = np.floor(requests["arrival_s"] / PERIOD_S).astype(int)
    return np.array([requests["admitted"][period == k].mean() for k in range(1, int(period.max()))])


def test_late_load_events_swing_between_all_and_nothing() -> None:
    """P14: with readings every 2 s, two seconds with full admission follow two without any."""
    late = overloaded()
    shares = admitted_shares(late)
    assert set(shares.tolist()) == {0, 1}
    assert np.abs(np.diff(shares)).mean() > 0.9
    # To shed earlier is no cure.
    earlier = overloaded(**{"busy_monitor.active_prefill_tokens_threshold": 2000})
    assert set(admitted_shares(earlier).tolist()) == {0, 1}


def test_fresh_load_events_cure_the_swing() -> None:
    """P14: requests that fit are always admitted; more are served, and sooner."""
    late = overloaded().summary()
    for transport in (signals.Live(), signals.Scraped(period_s=0.1)):
        fresh = overloaded(signals=transport)
        shares = admitted_shares(fresh)
        assert shares.min() > 0.4
        assert shares.max() < 0.8
        assert fresh.summary()["completed"] > 1.15 * late["completed"]
        assert fresh.summary()["mean_ttft_ms"] < late["mean_ttft_ms"] / 2


def test_a_proportional_gate_softens_the_swing() -> None:
    """P14: if workers report at different times, the share of busy ones is a smooth signal.

    It is not if all are read at one instant: then all are busy or none.
    """
    proportional = gateway.Gateway(admission=gateway.BusyThreshold(proportional=True))
    assert set(admitted_shares(overloaded(gateway=proportional)).tolist()) == {0, 1}
    staggered = signals.Scraped(period_s=PERIOD_S, jitter=1)
    cliff = overloaded(signals=staggered)
    soft = overloaded(signals=staggered, gateway=proportional)
    assert admitted_shares(cliff).max() == 1
    assert admitted_shares(cliff).std() > 2 * admitted_shares(soft).std()
    assert admitted_shares(soft).min() > 0.1
    assert admitted_shares(soft).max() < 0.9
    assert soft.summary()["p99_ttft_ms"] < cliff.summary()["p99_ttft_ms"] / 3


# ---- P15: a hot rank -----------------------------------------------------------------------------


def with_a_hot_rank(busy_rank_share: float, **settings: Any) -> Result:
    """Four ranks of 100 blocks; a long prompt fills one, short ones are spread over all."""
    arrival_s = [0.0, *(0.5 + 0.05 * i for i in range(100))]
    return run(
        arrival_s,
        input_tokens=[1300] + [64] * 100,
        output_tokens=[290] + [40] * 100,
        instances=BLIS_SERVER.replace(data_parallel_size=4, num_kv_blocks=100),
        gateway=BUSY,
        busy_monitor=signals.BusyMonitor(
            active_decode_blocks_threshold=0.8, busy_rank_share=busy_rank_share
        ),
        **settings,
    )


def test_all_ranks_must_be_busy_so_that_a_hot_one_is_not_seen() -> None:
    """P15: requests on the full rank wait or are preempted, and no request is rejected."""
    result = with_a_hot_rank(1)
    assert result.ledger["rejected"] == {}
    requests = result.requests
    short = np.arange(len(requests["rank"])) > 0
    hot = short & (requests["rank"] == requests["rank"][0])
    assert hot.sum() >= 5
    others = requests["e2e_s"][short & ~hot]
    assert requests["e2e_s"][hot].max() > 3 * others.max()
    assert requests["preemptions"][hot].sum() > 0
    assert requests["preemptions"][short & ~hot].sum() == 0


@pytest.mark.parametrize("share", [0, 0.25])
def test_one_busy_rank_may_suffice(share: float) -> None:
    """P15: the worker gets no requests while its first rank is full."""
    result = with_a_hot_rank(share)
    requests = result.requests
    is_rejected = requests["outcome"] == "rejected"
    assert 20 < is_rejected.sum() < 80
    served = requests["e2e_s"][1:][~is_rejected[1:]]
    assert served.max() < 2 * served.min()
    assert requests["preemptions"].sum() == 0


def test_a_router_of_ranks_avoids_the_hot_one() -> None:
    """P15: without any rejection, all are served as if the full rank did not exist."""
    result = with_a_hot_rank(1, router="kv_cost")
    assert result.ledger["rejected"] == {}
    requests = result.requests
    assert requests["preemptions"].sum() == 0
    assert requests["e2e_s"][1:].max() < 2 * requests["e2e_s"][1:].min()
    with_long = requests["arrival_s"] < requests["e2e_s"][0]
    with_long[0] = False
    assert with_long.sum() > 30
    assert not (requests["rank"][with_long] == requests["rank"][0]).any()


# ---- P16: outputs that are not counted -----------------------------------------------------------


def with_long_outputs(**monitor: Any) -> Result:
    """Prompts of one block, answers of 25; memory for eight at their longest."""
    return run(
        [0.15 * i for i in range(120)],
        input_tokens=16,
        output_tokens=400,
        instances=BLIS_SERVER.replace(num_kv_blocks=200),
        gateway=BUSY,
        busy_monitor=signals.BusyMonitor(active_decode_blocks_threshold=0.6, **monitor),
    )


def preemptions(result: Result) -> int:
    return int(result.requests["preemptions"].sum())


def test_prompts_alone_do_not_show_how_full_memory_is() -> None:
    """P16: 120 prompts are 60 % of the memory, so nothing is rejected, and work is wasted."""
    blind = with_long_outputs(decode_latch=False)
    assert blind.ledger["rejected"] == {}
    assert preemptions(blind) > 120


@pytest.mark.parametrize(
    "monitor",
    [{"track_output_blocks": True, "decode_latch": False}, {"track_output_blocks": False}],
    ids=["tracked", "reported"],
)
def test_counting_outputs_keeps_memory_free(monitor: dict[str, Any]) -> None:
    """P16: by the gateway's own count of generated tokens, or by the engine's reports."""
    blind = with_long_outputs(decode_latch=False)
    seeing = with_long_outputs(**monitor)
    assert seeing.ledger["rejected"]["all_workers_busy"] > 20
    assert preemptions(seeing) < preemptions(blind) / 5
    served = seeing.requests["e2e_s"][seeing.requests["outcome"] == "completed"]
    assert served.mean() < blind.requests["e2e_s"].mean() / 2
