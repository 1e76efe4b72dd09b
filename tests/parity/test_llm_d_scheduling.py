"""Agreement with the scheduling of llm-d-router @ ebab687: scorers, filters, detectors, pickers.

Its own code answered on random endpoints. What they report, and what the router knows of them, is
scripted here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import vectors

from spillway import Simulation, gateway, instance, router, testing
from spillway.testing import InstanceSignals, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Case = dict[str, Any]
Endpoint = dict[str, Any]

BLOCK = 16
AROUND = Simulation(instances=[instance.InstanceGroup(block_size_tokens=BLOCK)])

pytestmark = pytest.mark.skipif(
    not vectors("llm_d/picker"), reason="needs recorded answers of llm-d"
)


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=f"{name}-{case['id']}") for case in vectors(f"llm_d/{name}")]


def given(case: Case) -> dict[str, Any]:
    return case.get("parameters") or {}


def prompt_of(case: Case, block: int = BLOCK) -> Request:
    """Full blocks alone, as many as the matches of the endpoints refer to."""
    blocks = max((there.get("total_blocks", 0) for there in case["endpoints"]), default=0)
    return Request(input_tokens=max(1, blocks * block), adapter=case.get("model"))


def seen(there: Endpoint, **others: Any) -> InstanceSignals:
    """What the gateway sees of an endpoint."""
    predicted = "ttft_headroom_ms" in there
    scripted = {
        "waiting": there["waiting"],
        "running": there["running"],
        "kv_utilization": there["kv"],
        "in_flight": there.get("in_flight_requests", 0),
        "in_flight_tokens": there.get("in_flight_tokens", 0),
        "sent_blocks": there.get("match_blocks", 0) if there.get("total_blocks") else 0,
        "cached_blocks": there.get("match_blocks", 0) if there.get("total_blocks") else 0,
        "active_adapters": tuple(there.get("active_models", ())),
        "waiting_adapters": tuple(there.get("waiting_models", ())),
        "max_adapters": there.get("max_active_models", 0),
        "predicted_ttft_ms": there["ttft_ms"] if predicted else None,
        "ttft_headroom_ms": there["ttft_headroom_ms"] if predicted else 0,
        "tpot_headroom_ms": there["tpot_headroom_ms"] if predicted else 0,
    }
    return InstanceSignals(**(scripted | others))


def stale(case: Case, there: Endpoint) -> bool:
    """By the threshold of a utilization-detector."""
    return there["age_ms"] > (1000 if given(case).get("metricsStalenessThreshold") == "1s" else 200)


# --- scorers --------------------------------------------------------------------------------------


def renamed(case: Case, names: dict[str, str]) -> dict[str, Any]:
    """The parameters of a case by our names."""
    return {names[name]: value for name, value in given(case).items()}


SCORERS: dict[str, Callable[[Case], Any]] = {
    "queue-scorer": lambda _: router.QueueDepth(),
    "kv-cache-utilization-scorer": lambda _: router.KvUtilization(),
    "running-requests-size-scorer": lambda _: router.RunningRequests(),
    "load-aware-scorer": lambda case: router.LoadAware(
        **{name: value for name, value in given(case).items() if value > 0}
    ),
    "active-request-scorer": lambda case: router.ActiveRequests(
        **renamed(case, {"idleThreshold": "idle_threshold", "maxBusyScore": "max_busy_score"})
    ),
    "precise-prefix-cache-scorer": lambda _: router.PrecisePrefixCache(scale="prompt"),
    "lora-affinity-scorer": lambda _: router.LoraAffinity(),
    "latency-scorer": lambda case: router.PredictedLatency(
        **renamed(
            case,
            {
                "ttftWeight": "ttft_weight",
                "tpotWeight": "tpot_weight",
                "headroomSelectionStrategy": "strategy",
                "compositeKVWeight": "kv_weight",
                "compositeQueueWeight": "queue_weight",
                "compositePrefixWeight": "prefix_weight",
            },
        )
    ),
}


def all_of(names: Iterable[str], prefix: str) -> list[Any]:
    return [
        pytest.param(name, *case.values, id=case.id)
        for name in names
        for case in cases(f"{prefix}.{name}")
    ]


@pytest.mark.parametrize(("name", "case"), all_of(SCORERS, "scorer"))
def test_scores(name: str, case: Case) -> None:
    scorer = testing.build(SCORERS[name](case), simulation=AROUND)
    # The scorer by latency asks for requests that its predictor has counted.
    counted = name == "latency-scorer"
    endpoints = [
        seen(there, **({"in_flight": there.get("dispatched", 0)} if counted else {}))
        for there in case["endpoints"]
    ]
    scores = scorer.decide(prompt_of(case), instances=endpoints)
    assert scores == pytest.approx(case["scores"], rel=0, abs=1e-9)


@pytest.mark.parametrize("case", cases("scorer.token-load-scorer"))
def test_scores_by_tokens_in_flight(case: Case) -> None:
    """A prompt of a block that was sent everywhere adds nothing, so the sums are scripted."""
    scorer = testing.build(
        router.TokenLoad(**renamed(case, {"queueThresholdTokens": "queue_threshold_tokens"}))
    )
    endpoints = [
        InstanceSignals(
            sent_blocks=1,
            in_flight_tokens=there.get("in_flight_tokens", 0) + there.get("request_tokens", 0),
        )
        for there in case["endpoints"]
    ]
    scores = scorer.decide(Request(input_tokens=BLOCK), instances=endpoints)
    assert scores == pytest.approx(case["scores"], rel=0, abs=1e-9)


@pytest.mark.parametrize("case", cases("scorer.prefix-cache-scorer"))
def test_scores_by_prefix(case: Case) -> None:
    """Endpoints have blocks of different sizes, a simulation one: their scores are independent."""
    names = {
        "matchLengthWeight": "match_length_weight",
        "matchLengthScaleTokens": "match_length_scale_tokens",
    }
    for block in {there.get("block_size", BLOCK) for there in case["endpoints"]}:
        scorer = testing.build(
            router.PrefixAffinity(**renamed(case, names)),
            simulation=AROUND.with_(
                {
                    "prefix_index.block_size_tokens": block,
                    "prefix_index.capacity_blocks": 10**6,
                }
            ),
        )
        scores = scorer.decide(
            prompt_of(case, block), instances=[seen(there) for there in case["endpoints"]]
        )
        for there, score, recorded in zip(case["endpoints"], scores, case["scores"], strict=True):
            if there.get("block_size", BLOCK) == block:
                assert score == pytest.approx(recorded, rel=0, abs=1e-9)


def runs_of(name: str) -> list[Any]:
    """Steps of one run of a policy that keeps a state; a run may begin in its midst."""
    steps = sorted(vectors(f"llm_d/{name}"), key=lambda case: (case["run"], case["step"]))
    return [
        pytest.param(list(run), id=f"run-{number}")
        for number, run in itertools.groupby(steps, key=lambda case: case["run"])
    ]


@pytest.mark.parametrize("steps", runs_of("scorer.no-hit-lru-scorer"))
def test_scores_of_cold_prompts(steps: list[Case]) -> None:
    size = given(steps[0]).get("lruSize", 1024)
    scorer = testing.build(router.NoHitLru(memory=size), simulation=AROUND)
    for case in steps:
        request = Request(input_tokens=1000)
        endpoints = [InstanceSignals(cached_blocks=blocks) for blocks in case["match_blocks"]]
        scores = scorer.decide(request, instances=endpoints)
        assert scores == pytest.approx(case["scores"], rel=0, abs=1e-9)
        if case["sent_to"] is not None:
            scorer.learn(request, instance=case["sent_to"])


# --- filters --------------------------------------------------------------------------------------


DETECTOR = {
    "queueDepthThreshold": "queue_depth_threshold",
    "kvCacheUtilThreshold": "kv_utilization_threshold",
    "maxConcurrency": "max_concurrency",
    "maxTokenConcurrency": "max_token_concurrency",
    "concurrencyMode": "concurrency_mode",
    "headroom": "headroom",
}
THRESHOLDS = {
    "active-requests": "max_in_flight",
    "running-requests": "max_running",
    "waiting-queue": "max_waiting",
    "kv-cache-utilization": "max_kv_utilization",
}
AFFINITY = {
    "affinityThreshold": "threshold",
    "explorationProbability": "exploration",
    "peakPrefillThroughput": "peak_prefill_tokens_per_s",
}


def detector_settings(case: Case) -> dict[str, Any]:
    return {DETECTOR[name]: value for name, value in given(case).items() if name in DETECTOR}


def affinity(case: Case) -> router.PrefixCacheAffinity:
    parameters = given(case)
    penalty_ms = parameters.get("maxTTFTPenaltyMs", 18_000)
    from_predictor = parameters.get("ttftSource") == "latencyPredictor"
    return router.PrefixCacheAffinity(
        **{
            "exploration": 0,
            "max_ttft_penalty_s": penalty_ms / 1000 if penalty_ms > 0 else None,
            "ttft_source": "predictor" if from_predictor else "prefill_throughput",
        }
        | {AFFINITY[name]: value for name, value in parameters.items() if name in AFFINITY}
    )


FILTERS: dict[str, Callable[[Case], Any]] = {
    "utilization-detector": lambda case: router.UtilizationFilter(**detector_settings(case)),
    "concurrency-detector": lambda case: router.ConcurrencyFilter(**detector_settings(case)),
    "prefix-cache-affinity-filter": affinity,
    "slo-headroom-tier-filter": lambda case: router.SloHeadroom(
        exploration=given(case)["epsilonExploreNeg"]
    ),
    "utilization-filter": lambda case: router.Thresholds(
        **{THRESHOLDS[rule["metric"]]: rule["maxValue"] for rule in given(case)["conditions"]}
    ),
}


@pytest.mark.parametrize(("name", "case"), all_of(FILTERS, "filter"))
def test_filters_keep_the_same_instances(name: str, case: Case) -> None:
    """The tiers of one filter are recorded in an order that has no effect."""
    built = testing.build(FILTERS[name](case), simulation=AROUND)
    endpoints = [seen(there, is_stale=stale(case, there)) for there in case["endpoints"]]
    kept = list(built.decide(prompt_of(case), instances=endpoints))
    if not kept and given(case).get("fallbackOnEmpty"):
        kept = list(range(len(endpoints)))
    assert kept == sorted(case["kept"])


# --- saturation, ceilings, admission --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "case"), all_of(["utilization-detector", "concurrency-detector"], "saturation")
)
def test_saturation(name: str, case: Case) -> None:
    endpoints = [seen(there, is_stale=stale(case, there)) for there in case["endpoints"] or []]
    if not endpoints:
        assert case["saturation"] == 1  # the limit of a gateway without workers is closed as well
        return
    policy = gateway.Saturation(detector=name.removesuffix("-detector"), **detector_settings(case))
    limit = testing.build(policy, simulation=AROUND)
    for there in endpoints:
        for _ in range(there.in_flight):
            limit.started(Request())
    answer = limit.decide(Request(), instances=endpoints)
    assert answer.saturation == pytest.approx(case["saturation"], rel=0, abs=1e-9)


def usage_limit(case: Case) -> Any:
    parameters = given(case)
    if case["type"] == "soft-reflective-ceiling-policy":
        return gateway.SoftReflective()
    if case["type"] == "priority-holdback-policy":
        return gateway.PriorityHoldback(
            min_ceiling=parameters["minCeiling"],
            max_ceiling=parameters.get("maxCeiling", 1),
            domain=parameters.get("domain", "rank"),
        )
    return gateway.StaticCeilings()


@pytest.mark.parametrize("steps", runs_of("ceiling"))
def test_ceilings(steps: list[Case]) -> None:
    """The state of a policy is that of all steps, so a run that lacks its first ones is skipped.

    soft-reflective-ceiling-policy answers whether a band is open, 1 or 0.
    """
    first = steps[0]
    bands = [
        gateway.Band(priority=priority, ceiling=given(first).get("threshold", 1))
        for priority in first["priorities"]
    ]
    around = AROUND.with_({"gateway.bands": bands})
    limit = testing.build(usage_limit(first), simulation=around)
    for number, case in enumerate(steps):
        if case["step"] != number:
            pytest.skip("some of its steps are kept aside")
        ceilings = [max(0, ceiling) for ceiling in limit.decide(case["saturation"])]
        if case["type"] != "soft-reflective-ceiling-policy":
            assert ceilings == pytest.approx(case["ceilings"], rel=0, abs=1e-9)
        closed = [case["saturation"] >= ceiling for ceiling in ceilings]
        assert closed == [case["saturation"] >= ceiling for ceiling in case["ceilings"]]


@pytest.mark.parametrize("case", cases("admitter.probabilistic"))
def test_probabilities_of_rejection(case: Case) -> None:
    """Draws are within five standard deviations."""
    names = DETECTOR | {"power": "power", "k": "k"}
    settings = {names[name]: value for name, value in given(case).items()}
    classes = AROUND.slo_classes
    slo_class = classes[0].replace(name="own", priority=case["priority"])
    admission = testing.build(
        gateway.Probabilistic(**settings),
        slo_classes=[slo_class],
        simulation=AROUND,
    )
    endpoints = [seen(there) for there in case["endpoints"]]
    trials = 1000
    rejected = sum(
        not admission.decide(Request(slo_class="own"), instances=endpoints).admitted
        for _ in range(trials)
    )
    there = case["rejected"] / case["trials"]
    spread = (there * (1 - there) * (1 / trials + 1 / case["trials"])) ** 0.5
    assert abs(rejected / trials - there) <= 5 * spread + 1e-12


@pytest.mark.parametrize("case", cases("admitter.latency-slo"))
def test_requests_without_targets_are_admitted(case: Case) -> None:
    """No recorded request states a target, and none is rejected."""
    slo_class = AROUND.slo_classes[0].replace(name="own", priority=case["priority"])
    admission = testing.build(gateway.LatencySlo(), slo_classes=[slo_class], simulation=AROUND)
    endpoints = [seen(there) for there in case["endpoints"] or []]
    admitted = admission.decide(Request(slo_class="own"), instances=endpoints or None).admitted
    assert admitted == (not case["rejected"])


# --- pickers, profiles ----------------------------------------------------------------------------


PICKERS = {
    "max-score-picker": router.Best(ties="random"),
    "random-picker": router.Random(),
    "weighted-random-picker": router.WeightedRandom(),
}


@pytest.mark.parametrize("case", cases("picker"))
def test_picks(case: Case) -> None:
    """How often each came first, and, picked again without the first ones, among the picked."""
    picker = testing.build(PICKERS[case["type"]])
    trials, draws = 4000, case["trials"]
    first: Counter[int] = Counter()
    among: Counter[int] = Counter()
    for _ in range(trials):
        left = list(range(len(case["scores"])))
        for place in range(case["picked_per_trial"]):
            at = left.pop(picker.decide([case["scores"][i] for i in left]))
            among[at] += 1
            first[at] += place == 0
    for ours, there in ((first, case["first"]), (among, case["among"])):
        for i, count in enumerate(there):
            share = count / draws
            spread = (share * (1 - share) * (1 / trials + 1 / draws)) ** 0.5
            assert abs(ours[i] / trials - share) <= 5 * spread + 1e-12


PROFILE: dict[str, Callable[..., Any]] = {
    "queue-scorer": router.QueueDepth,
    "kv-cache-utilization-scorer": router.KvUtilization,
    "prefix-cache-scorer": router.PrefixAffinity,
    "running-requests-size-scorer": router.RunningRequests,
    "load-aware-scorer": router.LoadAware,
    "active-request-scorer": router.ActiveRequests,
}


@pytest.mark.parametrize("case", cases("profile"))
def test_profiles(case: Case) -> None:
    """Weighted sums, which are not divided by the weights there, and the chosen endpoints."""
    assert case["picker"] == "max-score-picker"
    scorers = [PROFILE[part["type"]](weight=part["weight"]) for part in case["scorers"]]
    built = testing.build(
        router.Weighted(scorers=scorers, picker=router.Best(ties="random")), simulation=AROUND
    )
    endpoints = [seen(there) for there in case["endpoints"]]
    decision = built.decide(prompt_of(case), instances=endpoints, learn=False)
    total = sum(part["weight"] for part in case["scorers"])
    sums = [score * total for score in decision.scores]
    assert sums == pytest.approx(case["sums"], rel=0, abs=1e-9)
    assert decision.instance in case["chosen_in_60"]


# --- eviction -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("eviction_queue"))
def test_victims(case: Case) -> None:
    inside = sorted(case["in_flight"], key=lambda request: request["dispatched_s"])
    eviction = testing.Eviction(gateway.Eviction(max_victims=case["asked"]))
    ours = {eviction.dispatched(request["priority"]): request["id"] for request in inside}
    for number, request in list(ours.items()):
        if request == case["finished"]:
            eviction.ended(number)
    victims = eviction.relieve(saturation=1e6, ceiling=0) if inside else ()
    assert [str(ours[number]) for number in victims] == case["victims"]
