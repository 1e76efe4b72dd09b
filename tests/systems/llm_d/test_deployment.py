"""The endpoint picker of llm-d."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from support.deployments import written
from support.effort import few_of, often, trials
from support.random_simulations import random_simulation

from spillway import ConfigError, Simulation, gateway, router, simulate
from spillway.files.deployments import Import, export, import_
from spillway.systems.llm_d import presets as llm_d
from spillway.systems.llm_d.configuration import load
from spillway.systems.llm_d.plugins import (
    DETECTORS,
    FAIRNESS,
    FILTERS,
    ORDERINGS,
    PARAMETERS,
    PICKERS,
    SCORERS,
    USAGE_LIMITS,
)

if TYPE_CHECKING:
    from pathlib import Path


def _scale(name: str) -> str:
    return "range" if name == "llm-d@0.8" else "prompt"


def expressible(name: str) -> dict[str, Any]:
    """Settings that the files carry, all that the system decides."""
    fairness = gateway.LeastAttainedService(
        service_weight=0.7, half_life_s=30, decay="always", scope="gateway"
    )
    queue = gateway.Queue(timeout_s=20, ordering="slo_deadline")
    preset = llm_d.flow_control(
        priorities=(4, 3, 0, -1, -2, -3),
        detector="utilization",
        usage_limit=gateway.PriorityHoldback(min_ceiling=0.4),
        evicts_in_flight=True,
    )
    bands = [
        band.replace(
            fairness=gateway.TenantRoundRobin() if band.priority < 0 else fairness, queue=queue
        )
        for band in preset.gateway.bands
    ]
    limit = gateway.Saturation(queue_depth_threshold=8, kv_utilization_threshold=0.7)
    return {
        "gateway": preset.gateway.replace(
            admission=gateway.Probabilistic(k=200), bands=bands, limit=limit, max_queued=9000
        ),
        "signals": preset.signals.replace(stale_after_s=0.5),
        "router": {
            "kind": "weighted",
            "filters": [
                {
                    "kind": "prefix_cache_affinity",
                    "threshold": 0.6,
                    "exploration": 0.02,
                    "max_ttft_penalty_s": 9,
                    "ttft_source": "predictor",
                },
                {"kind": "utilization", "queue_depth_threshold": 9, "headroom": 0.25},
                {
                    "kind": "concurrency",
                    "concurrency_mode": "hybrid",
                    "headroom": 0.5,
                    "if_none": "reject",
                },
                {"kind": "slo_headroom", "exploration": 0.02},
            ],
            "scorers": [
                {"kind": "precise_prefix_cache", "weight": 3, "scale": _scale(name)},
                {"kind": "load_aware", "weight": 1.5, "threshold": 64},
                {"kind": "active_requests", "idle_threshold": 2, "max_busy_score": 0.5},
                {"kind": "token_load", "queue_threshold_tokens": 100_000},
                {"kind": "predicted_latency", "strategy": "most"},
            ],
            "picker": {"kind": "best", "ties": "random"},
        },
    }


HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
EPP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: epp}
data:
  plugins.yaml: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    featureGates: [flowControl]
    plugins:
    - {type: queue-scorer}
    - {type: lora-affinity-scorer}
    - {type: max-score-picker}
    - {name: detector, type: concurrency-detector, parameters: {maxConcurrency: 24, headroom: 0.1}}
    - {type: round-robin-fairness-policy}
    - {type: token-producer, parameters: {estimate: {}}}
    - {type: random-picker, parameters: {maxNumOfEndpoints: 2}}
    schedulingProfiles:
    - name: default
      plugins:
      - {pluginRef: queue-scorer, weight: 2}
      - {pluginRef: lora-affinity-scorer}
      - {pluginRef: max-score-picker}
    flowControl:
      maxBytes: 1000
      defaultRequestTTL: 1m30s
      noEndpointRequestTTL: 5m
      saturationDetector: {pluginRef: detector}
      priorityBands:
      - {priority: 4, maxRequests: 7, maxBytes: 1Mi}
    requestHandler: {parsers: [{pluginRef: openai-parser}]}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: premium}
spec: {priority: 9, poolRef: {name: pool}}
"""


def test_llm_d_as_in_production(tmp_path: Path) -> None:
    found = import_(written(tmp_path, epp__yaml=EPP), system="llm-d")
    simulation = found.simulation
    assert simulation.gateway.limit == (
        gateway.Saturation(detector="concurrency", max_concurrency=24),
    )
    assert simulation.gateway.dispatch == "one_per_cycle"
    # A band for every priority: those of the default classes, of the objective, of the file, and 0.
    bands = {band.priority: band.max_requests for band in simulation.gateway.bands}
    assert bands == {4: 7, 0: 5000, 9: 5000, 3: 5000, -1: 5000, -2: 5000, -3: 5000}
    assert {band.queue.timeout_s for band in simulation.gateway.bands} == {90}
    priorities = {known.name: known.priority for known in simulation.slo_classes}
    assert priorities["premium"] == 9
    assert simulation.router == router.Weighted(
        scorers=[router.QueueDepth(weight=2), router.LoraAffinity()],
        picker=router.Best(ties="random"),
    )
    fields = {unread.field.rpartition("plugins.yaml: ")[2]: unread.value for unread in found.unread}
    assert fields == {
        "requestHandler": {"parsers": [{"pluginRef": "openai-parser"}]},
        "plugins[4]: type": "round-robin-fairness-policy",
        "plugins[5]: type": "token-producer",
        "plugins[6]: type": "random-picker",
        "flowControl: maxBytes": 1000,
        "flowControl: priority band 4: maxBytes": 2**20,
        "flowControl: noEndpointRequestTTL": "300s",
    }


def test_llm_d_without_its_feature_gate(tmp_path: Path) -> None:
    text = """\
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl=false]
plugins: [{type: probabilistic-admitter, parameters: {k: 100}}]
flowControl: {maxRequests: 5, saturationDetector: {pluginRef: utilization-detector}}
"""
    found = import_(written(tmp_path, epp__yaml=text), system="llm-d")
    assert found.simulation.gateway == gateway.Gateway(
        admission=[gateway.GaieLegacy(), gateway.Probabilistic(k=100)]
    )
    (unread,) = found.unread
    assert str(unread).endswith(
        "flowControl = {maxRequests: 5}: is ignored without the feature gate flowControl"
    )


def test_probabilistic_admission_that_llm_d_cannot_have() -> None:
    never = gateway.Probabilistic(k=0.0)  # refused by llm-d, and without effect here
    files = export(Simulation(gateway={"admission": never}), to="llm-d", allow_lossy=True).files
    assert "probabilistic-admitter" not in "".join(files.values())
    flat = gateway.Probabilistic(power=0.0)
    with pytest.raises(ConfigError, match=r"admission\[0\].power = 0: cannot be that of a prob"):
        export(Simulation(gateway={"admission": flat}), to="llm-d")


def imported(tmp_path: Path, text: str) -> Import:
    return import_(written(tmp_path, epp__yaml=HEAD + text if text else ""), system="llm-d")


RANDOM = router.Weighted(scorers=[router.LoadBalance()], picker=router.Random())
BEST = router.Best(ties="random")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            router.Weighted(
                scorers=[
                    router.QueueDepth(weight=2),
                    router.KvUtilization(weight=2),
                    router.PrefixAffinity(weight=3),
                ],
                picker=BEST,
            ),
        ),
        ("plugins: []", RANDOM),
        ("plugins: [{type: max-score-picker}]", RANDOM),
        (
            "plugins: [{type: queue-scorer}, {type: random-picker}]",
            router.Weighted(scorers=[router.QueueDepth()], picker=router.Random()),
        ),
        (
            (
                "plugins: [{type: queue-scorer}, {type: weighted-random-picker}]\n"
                "schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer, weight: 3}]}]"
            ),
            router.Weighted(scorers=[router.QueueDepth(weight=3)], picker=router.WeightedRandom()),
        ),
        (
            "plugins: [{type: queue-scorer}, {type: utilization-detector}]",
            router.Weighted(
                filters=[router.UtilizationFilter()], scorers=[router.QueueDepth()], picker=BEST
            ),
        ),
        (
            (
                "plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}]\n"
                "schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer, weight: 0}, "
                "{pluginRef: kv-cache-utilization-scorer}]}]"
            ),
            router.Weighted(scorers=[router.KvUtilization()], picker=BEST),
        ),
        (
            (
                "plugins: [{name: p, type: precise-prefix-cache-producer}, "
                "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: p}}]"
            ),
            router.Weighted(scorers=[router.PrecisePrefixCache(scale="prompt")], picker=BEST),
        ),
    ],
)
def test_the_profile_is_completed_as_by_the_router(
    tmp_path: Path, text: str, expected: router.Weighted
) -> None:
    assert imported(tmp_path, text).simulation.router == expected


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ('"1k"', 1000),
        ("1Ki", 1024),
        ("2Ki", 2048),
        ('"2.5"', 3),
        ("500m", 1),
        ("2e2", 200),
        ("1M", 1_000_000),
        ("0", None),
        ("5G", None),  # more than a run can have
    ],
)
def test_quantities_are_read_as_in_kubernetes(
    tmp_path: Path, quantity: str, expected: int | None
) -> None:
    text = (
        f"featureGates: [flowControl]\nflowControl: {{maxRequests: {quantity}, "
        f"priorityBands: [{{priority: 7, maxRequests: {quantity}}}]}}"
    )
    found = imported(tmp_path, text).simulation.gateway
    assert found.max_queued == expected
    (band,) = (band for band in found.bands if band.priority == 7)
    assert band.max_requests == (5000 if quantity == "0" else expected)


def test_bounds_and_times_of_zero_are_none_or_the_default(tmp_path: Path) -> None:
    text = (
        "featureGates: [flowControl=true]\n"
        "flowControl: {defaultRequestTTL: 0s, defaultPriorityBand: {maxRequests: 3}}"
    )
    found = imported(tmp_path, text)
    bands = found.simulation.gateway.bands
    assert {band.queue.timeout_s for band in bands} == {None}
    assert {band.max_requests for band in bands} == {3}
    assert 0 in {band.priority for band in bands}
    assert found.unread == ()


def test_what_is_in_force_and_not_simulated_is_listed(tmp_path: Path) -> None:
    text = """\
plugins:
- {type: prefix-cache-affinity-filter}
- {type: active-request-scorer, parameters: {maxBusyScore: 0.5, idleThreshold: -1}}
- {type: concurrency-detector, parameters: {concurrencyMode: hybrid}}
- {type: queue-scorer}
- {type: decode-filter}
schedulingProfiles:
- name: a
  plugins:
  - {pluginRef: prefix-cache-affinity-filter}
  - {pluginRef: active-request-scorer}
  - {pluginRef: concurrency-detector}
  - {pluginRef: queue-scorer, weight: -2}
  - {pluginRef: decode-filter}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
"""
    found = imported(tmp_path, text)
    assert found.simulation.router == router.Weighted(
        filters=[
            router.PrefixCacheAffinity(exploration=0, max_ttft_penalty_s=18),
            router.ConcurrencyFilter(concurrency_mode="hybrid", if_none="reject"),
        ],
        scorers=[router.ActiveRequests(max_busy_score=0.5)],
        picker=BEST,
    )
    listed = {unread.field.partition("epp.yaml: ")[2]: unread for unread in found.unread}
    assert {field: unread.value for field, unread in listed.items()} == {
        "schedulingProfiles: queue-scorer: weight": -2,
        "plugins[4]: type": "decode-filter",
    }
    reasons = [unread.reason for unread in listed.values()]
    assert reasons[0] == "a simulation has no negative weights: left out"


STAGES = """\
plugins:
- {type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 20000}}
- {type: prefix-cache-scorer}
- {type: prefill-filter}
- {type: decode-filter}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
dataLayer: {sources: []}
"""


def test_of_two_stages_that_of_decode_is_simulated(tmp_path: Path) -> None:
    found = imported(tmp_path, STAGES)
    assert found.simulation.router == router.Weighted(
        scorers=[router.LoadBalance()], picker=router.Random()
    )
    listed = {unread.field.partition("epp.yaml: ")[2]: unread for unread in found.unread}
    assert {field: unread.value for field, unread in listed.items()} == {
        "dataLayer": {"sources": []},
        "schedulingProfiles": "prefill",
        "plugins[0]: type": "approx-prefix-cache-producer",
        "plugins[4]: type": "disagg-profile-handler",
    }
    reason = "both pools are routed by one profile here, that of decode"
    assert listed["schedulingProfiles"].reason == reason
    assert "no server is of a prefill pool" in listed["plugins[4]: type"].reason


@pytest.mark.filterwarnings("ignore:vllm-.* is newer than the rules")
def test_roles_and_the_handler_make_two_pools(tmp_path: Path) -> None:
    values = """\
decode:
  replicas: 3
  containers: [{command: [vllm, serve, Qwen/Qwen3-8B], args: [--max-num-seqs, "64"]}]
prefill:
  replicas: 2
  containers:
  - command: [vllm, serve, Qwen/Qwen3-8B]
    args: [--kv-transfer-config, '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
"""
    (tmp_path / "values.yaml").write_text(values)
    head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
    (tmp_path / "epp.yaml").write_text(head + STAGES)
    found = import_([tmp_path / "values.yaml", tmp_path / "epp.yaml"], gpu="h100")
    groups = [(group.role, group.count) for group in found.simulation.instances]
    assert sorted(groups) == [("decode", 3), ("prefill", 2)]
    assert found.simulation.disaggregation == router.Disaggregation(
        order="decode_first", decider=router.UncachedTokens(min_uncached_tokens=16)
    )
    assert any("kv-transfer-config" in note for note in found.notes)
    result = simulate(found.simulation.with_({"workload.num_requests": 20}))
    assert result.ledger["legs"]["transfers_ended"] > 0


def test_a_decider_that_is_none_is_refused(tmp_path: Path) -> None:
    text = STAGES.replace("prefill: prefix-based-pd-decider", "prefill: queue-scorer")
    with pytest.raises(ConfigError, match="must be a plugin of type prefix-based-pd-decider"):
        imported(tmp_path, text)


def test_a_half_life_of_zero_is_the_decay_per_second(tmp_path: Path) -> None:
    text = """\
featureGates: [flowControl]
plugins: [{type: program-aware-fairness, parameters: {lasHalfLifeSeconds: 0, lasDecayFactor: 0.5}}]
flowControl: {defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}}
"""
    (fairness, *_) = {band.fairness for band in imported(tmp_path, text).simulation.gateway.bands}
    assert fairness == gateway.LeastAttainedService(half_life_s=1, decay="always", scope="gateway")


def test_one_program_aware_policy_is_written_for_all_bands() -> None:
    """The router panics at start if there are two."""
    bands = [
        gateway.Band(priority=priority, fairness=gateway.LeastAttainedService(half_life_s=half))
        for priority, half in ((10, 60), (0, 5))
    ]
    found = export(
        Simulation(gateway=gateway.Gateway(bands=bands, limit=gateway.Saturation())), to="llm-d"
    )
    text = found.files["endpointpickerconfig.yaml"]
    assert text.count("type: program-aware-fairness") == 1
    assert load(text, "x").flow_control
    losses = {loss.path: loss.deployed for loss in found.losses}
    assert losses["gateway.bands[1].fairness.half_life_s"] == 60


def test_the_preset_of_llm_d_is_carried() -> None:
    simulation = (
        llm_d.flow_control()
        .apply()
        .replace(router=router.Weighted(picker=router.Best(ties="random")))
    )
    found = export(simulation, to="llm-d")
    assert found.losses == ()
    assert found.deployed.gateway == simulation.gateway


@pytest.mark.parametrize("seed", few_of(range(60), 10))
def test_the_router_would_load_every_export(seed: int) -> None:
    simulation = random_simulation(f"llm-d loads {seed}").simulation
    try:
        files = export(simulation, to="llm-d", allow_lossy=True).files
    except ConfigError as error:
        allowed = ("cannot be the name", "needs a gateway.controller")
        assert any(text in str(error) for text in allowed)  # noqa: PT017
    else:
        assert load(files["endpointpickerconfig.yaml"], "x")


NUMBERS: dict[str, list[Any]] = {
    "int": [0, 1, 3, 50],
    "float": [0, 0.3, 0.7, 1, 12],
    "bool": [True, False],
}


def random_plugin(rng: random.Random, kind: str, name: str) -> dict[str, Any]:
    """A plugin with some parameters, which the router may refuse."""
    given = {
        key: rng.choice(NUMBERS[known.kind])
        for key, known in PARAMETERS.get(kind, {}).items()
        if known.kind in NUMBERS and rng.random() < 0.3
    }
    if kind == "priority-holdback-policy":
        given |= {"minCeiling": 0.3, "domain": rng.choice(["rank", "value"])}
    return {"name": name, "type": kind, **({"parameters": given} if given else {})}


def random_configuration(rng: random.Random) -> dict[str, Any]:
    """A configuration of llm-d's router, which may refuse it."""
    simulated = [
        *("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer"),
        *("precise-prefix-cache-scorer", "active-request-scorer", "running-requests-size-scorer"),
        *("load-aware-scorer", "no-hit-lru-scorer", "lora-affinity-scorer", "decode-filter"),
        *("prefix-cache-affinity-filter", "utilization-detector", "concurrency-detector"),
        *("edf-ordering-policy", "slo-deadline-ordering-policy", "round-robin-fairness-policy"),
        *("program-aware-fairness", "priority-holdback-policy", "static-usage-limit-policy"),
        *("soft-reflective-ceiling-policy", "probabilistic-admitter", "latency-slo-admitter"),
    ]
    kinds = rng.sample(simulated, rng.randrange(8))
    kinds += [rng.choice(sorted(PICKERS))] * (rng.random() < 0.5)
    names = {kind: rng.choice([kind, f"my-{kind}"]) for kind in kinds}
    content: dict[str, Any] = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
    content["plugins"] = [random_plugin(rng, kind, names[kind]) for kind in kinds]
    if rng.random() < 0.6:
        used = [kind for kind in kinds if kind in SCORERS | FILTERS]
        content["schedulingProfiles"] = [{"name": "a", "plugins": [
            {"pluginRef": names[kind], **({"weight": rng.choice([0, 1, 2.5])} if kind in SCORERS
             and rng.random() < 0.7 else {})}
            for kind in used
        ]}]  # fmt: skip

    def one_of(role: frozenset[str]) -> str | None:
        return rng.choice([None, *(names[kind] for kind in kinds if kind in role)])

    def band() -> dict[str, Any]:
        return {
            "maxRequests": rng.choice([None, 0, 7, "2k", "1.5"]),
            "fairnessPolicyRef": one_of(FAIRNESS),
            "orderingPolicyRef": one_of(ORDERINGS),
        }

    content["featureGates"] = rng.choice([[], ["flowControl"], ["flowControl=true"]])
    content["flowControl"] = {
        "maxRequests": rng.choice([None, 0, "1k", "3Ki", 12]),
        "defaultRequestTTL": rng.choice([None, "0s", "1m30s", "200ms"]),
        "enableEviction": rng.choice([None, True, False]),
        "usageLimitPolicyPluginRef": one_of(USAGE_LIMITS),
        "saturationDetector": {"pluginRef": one_of(DETECTORS)},
        "defaultPriorityBand": band(),
        "priorityBands": [
            {"priority": priority, **band()} for priority in rng.sample(range(-4, 9), 3)
        ],
    }
    return content


def test_import_export_import_is_a_fixed_point(tmp_path: Path) -> None:
    """Of whatever configuration the router loads."""
    loads = 0
    for seed in trials(600):
        content = random_configuration(random.Random(seed))
        path = tmp_path / "epp.yaml"
        path.write_text(json.dumps(content))
        try:
            simulation = import_(path, system="llm-d").simulation
        except ConfigError:
            continue
        loads += 1
        exported = export(simulation, to="llm-d")
        assert exported.losses == (), seed
        folder = tmp_path / str(seed)
        exported.write(folder)
        again = import_(folder, system="llm-d", onto=simulation)
        assert again.simulation == simulation, seed
        assert again.unread == (), seed
    assert loads > often(300)


CONFIG = f"{HEAD}featureGates: [flowControl]\n"
REFUSED = {
    "a.yaml": [
        ("kind: Service", "must contain one EndpointPickerConfig"),
        ("kind: EndpointPickerConfig", "apiVersion: is missing"),
        ("kind: EndpointPickerConfig\napiVersion: v1", "apiVersion = 'v1': must be one of"),
        (f"{HEAD}plugins: [{{name: x}}]", "plugins[0]: type: is miss"),
        (f"{HEAD}plugins: [{{type: my-scorer}}]", "is not a type of plugin of llm-d 0.10"),
        (f"{HEAD}plugins: [{{type: queue-scorer, x: 1}}]", "plugins[0]: x: is an unknown field"),
        (
            f"{HEAD}plugins: [{{type: queue-scorer}}, {{name: queue-scorer, type: tokenizer}}]",
            "must not be the name of two plugins",
        ),
        (
            f"{HEAD}plugins: [{{type: load-aware-scorer, parameters: {{weight: 1}}}}]",
            "plugins[0]: parameters: weight: is unknown to llm-d 0.10",
        ),
        (
            f"{HEAD}plugins: [{{type: prefix-cache-scorer, parameters: {{blockSize: 64}}}}]",
            "blockSize: is unknown to llm-d 0.10: it is one of approx-prefix-cache-producer",
        ),
        (
            f"{HEAD}plugins: [{{type: max-score-picker}}, {{type: random-picker}}]",
            "must have one picker at most",
        ),
        (
            (
                f"{HEAD}plugins: [{{name: a, type: program-aware-fairness}}, "
                "{name: b, type: program-aware-fairness}]"
            ),
            "the router panics",
        ),
        (
            f"{HEAD}schedulingProfiles: [{{name: a}}, {{name: b}}]",
            "must be one, or need a profile handler",
        ),
        (f"{HEAD}schedulingProfiles: [{{plugins: []}}]", "must be a name, different for each"),
        (
            f"{CONFIG}flowControl: {{defaultRequestTTL: soon}}",
            "flowControl: defaultRequestTTL = 'soon': must be a duration such as 60s",
        ),
        (f"{CONFIG}flowControl: {{defaultRequestTTL: -5s}}", "must not be negative"),
        (f"{CONFIG}flowControl: {{maxRequests: 1kk}}", "must be a quantity such as 500"),
        (
            f"{CONFIG}flowControl: {{priorityBands: [{{priority: 1}}, {{priority: 1}}]}}",
            "must differ by priority",
        ),
        (
            f"{CONFIG}flowControl: {{usageLimitPolicyPluginRef: priority-holdback-policy}}",
            "must be a plugin under `plugins`",
        ),
        (
            f"{CONFIG}flowControl: {{priorityBands: [{{priority: 5000}}]}}",
            "a.yaml: priority = 5000: must be >= -1000 and <= 1000",
        ),
        (
            (
                f"{HEAD}plugins: [{{name: q, type: queue-scorer}}]\n"
                "schedulingProfiles: [{name: a, plugins: [{pluginRef: q, weight: 1e12}]}]"
            ),
            "a.yaml: scorers[0].weight = 1000000000000: must be > 0",
        ),
        (f"{HEAD}featureGates: [flowControl=yes]", "must be flowControl, flowControl=true or"),
        (
            (
                f"{HEAD}plugins: [{{name: mine, type: queue-scorer}}]\n"
                "saturationDetector: {pluginRef: mine}"
            ),
            "must be one of concurrency-detector, utilization-detector",
        ),
    ]
}


PRECISE = f"{HEAD}plugins: [{{type: precise-prefix-cache-scorer}}, {{type: max-score-picker}}]"


@pytest.mark.parametrize(("version", "scale"), [("0.8", "range"), ("0.9", "prompt")])
def test_the_precise_scorer_is_that_of_the_version(
    tmp_path: Path, version: str, scale: str
) -> None:
    found = import_(written(tmp_path, epp__yaml=PRECISE), system=f"llm-d@{version}")
    (scorer,) = found.simulation.router.scorers
    assert scorer == router.PrecisePrefixCache(scale=scale)  # type: ignore[arg-type]
    assert any("has the rules of 0.10, but for" in note for note in found.notes)
    exported = export(found.simulation, to=f"llm-d@{'0.10' if version == '0.8' else '0.8'}")
    (loss,) = (loss for loss in exported.losses if loss.path.startswith("router"))
    assert loss.path == "router.scorers[0].scale"
    assert "the version decides it" in loss.reason


def test_what_0_10_refuses_is_listed_in_older_versions(tmp_path: Path) -> None:
    text = f"""{HEAD}plugins:
- {{type: my-scorer}}
- {{type: prefix-cache-scorer, parameters: {{blockSize: 5}}}}
- {{type: max-score-picker}}
"""
    path = list(written(tmp_path, epp__yaml=text))
    with pytest.raises(ConfigError, match=r"is not a type of plugin of llm-d 0\.10"):
        import_(path, system="llm-d")
    found = import_(path, system="llm-d@0.9")
    listed = {entry.field.partition(": ")[2]: entry.value for entry in found.unread}
    assert listed == {"plugins[0]: type": "my-scorer", "plugins[1]: parameters: blockSize": 5}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_endpoints_to_fall_back_to_are_listed(tmp_path: Path, number: int) -> None:
    text = f"""{HEAD}plugins:
- {{type: queue-scorer}}
- {{type: weighted-random-picker, parameters: {{maxNumOfEndpoints: {number}}}}}
"""
    found = import_(written(tmp_path, epp__yaml=text), system="llm-d")
    assert found.simulation.router.picker == router.WeightedRandom()
    listed = [(entry.value, entry.reason.partition(";")[0]) for entry in found.unread]
    assert listed == ([(2, "the first one gets the request")] if number == 2 else [])
