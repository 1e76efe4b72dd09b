"""Several models behind one gateway: requests go to instances that serve theirs alone."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.effort import trials
from support.runs import fixed, flat, ns, outcomes, run, steady

import spillway
from spillway import ConfigError, Result, Simulation, gateway, instance, policies, workload
from spillway.files.deployments import export

if TYPE_CHECKING:
    from spillway.findings.finding import Finding

NAMES = ("small", "large", "third")
NONE = workload.Synthetic(num_requests=0, clients=[workload.Client(tenant="small")])


def tenants(*models: str) -> list[workload.Tenant]:
    """A tenant per model, with its name; the model "" is no model."""
    return [workload.Tenant(name=model or "any", model=model) for model in models]


def served(*models: list[str], **settings: Any) -> list[instance.InstanceGroup]:
    """A group per list of models."""
    return [flat(**settings).replace(models=of) for of in models]


# --- what a model of its own is -------------------------------------------------------------------


@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "weighted"])
def test_models_with_servers_of_their_own_are_like_fleets_of_their_own(router: str) -> None:
    """A gateway that holds no request joins them in nothing."""
    for seed in trials(30):
        rng = random.Random(f"{router} {seed}")
        models = NAMES[: rng.randint(2, 3)]
        groups = [
            instance.InstanceGroup(
                count=rng.randint(1, 3),
                models=[model],
                latency=steady(rng.randint(5, 20), beta_decode_us=rng.choice((0, 300))),
                max_num_seqs=rng.randint(1, 4),
                num_kv_blocks=rng.randint(10, 60),
            )
            for model in models
        ]
        n = 40
        of = np.array(rng.choices(models, k=n))
        arrival_s = np.sort([rng.randrange(10**9) / 1e9 for _ in range(n)])
        prompts = np.array([rng.randint(1, 80) for _ in range(n)])
        outputs = np.array([rng.randint(1, 30) for _ in range(n)])
        together = run(
            arrival_s,
            input_tokens=prompts,
            output_tokens=outputs,
            tenant=list(of),
            tenants=tenants(*models),
            instances=groups,
            router=router,
        )
        first = 0
        for group, model in zip(groups, models, strict=True):
            own = of == model
            alone = run(
                arrival_s[own],
                input_tokens=prompts[own],
                output_tokens=outputs[own],
                tenant=list(of[own]),
                instances=group,
                router=router,
            )
            for name in ("ttft_s", "e2e_s", "queue_s"):
                assert ns(together.requests[name][own]) == ns(alone.requests[name]), (seed, name)
            placed = together.requests["instance"][own]
            assert (placed - first == alone.requests["instance"]).all(), seed
            first += group.count


def used(result: Result, tenant: str) -> Counter[int]:
    of = result.requests["tenant"] == tenant
    return Counter(result.requests["instance"][of].tolist())


def test_groups_may_serve_several_models_or_any() -> None:
    result = run(
        np.arange(60) / 10,
        tenant=["small", "large", "any"] * 20,
        tenants=tenants("small", "large", ""),
        instances=served(["small"], ["small", "large"], []),
        router="round_robin",
    )
    assert set(used(result, "small")) == {0, 1, 2}
    assert set(used(result, "large")) == {1, 2}
    assert set(used(result, "any")) == {0, 1, 2}


def test_turns_of_all_models_together_leave_servers_out() -> None:
    """Requests of two models that alternate always meet the same remainders."""
    turns = {}
    for per_model in (True, False):
        result = run(
            np.arange(80) / 10,
            tenant=["small", "large"] * 40,
            tenants=tenants("small", "large"),
            instances=served(["small"], ["small"], ["large"], ["large"]),
            router={"kind": "round_robin", "per_model": per_model},
        )
        turns[per_model] = [used(result, "small")[i] for i in (0, 1)]
        turns[per_model] += [used(result, "large")[i] for i in (2, 3)]
    assert turns == {True: [20, 20, 20, 20], False: [40, 0, 0, 40]}


# --- where no instance serves the model -----------------------------------------------------------


def test_a_request_without_a_ready_instance_is_rejected() -> None:
    result = run(
        [0, 0, 50, 50],
        tenant=["small", "large"] * 2,
        tenants=tenants("small", "large"),
        instances=served(["small"], ["large"]),
        fleet={"initial_instances": 1, "target_instances": 1, "startup_s": 5},
        changes=[{"at_s": 10, "set": {"fleet.target_instances": 2}}],
    )
    assert outcomes(result) == ["completed", "rejected", "completed", "completed"]
    assert result.requests["reason"].tolist() == ["", "no_candidate", "", ""]
    assert result.ledger["router_rejected"] == {"no_candidate": 1}


def test_an_instance_of_another_model_is_none_for_a_submission() -> None:
    session = spillway.start(
        Simulation(
            workload=NONE,
            tenants=tenants("small", "large"),
            instances=served(["small"], ["large"]),
        ),
        open_ended=True,
    )
    for tenant in ("small", "large"):
        session.submit(tenant=tenant, input_tokens=10, output_tokens=2, instance=1)
    assert outcomes(session.finish()) == ["rejected", "completed"]


def test_a_model_that_no_group_serves_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"tenants\[0\]\.model = 'huge': must be among the models"
    ):
        Simulation(tenants=tenants("huge", "small"), instances=served(["small"]), workload=NONE)


def test_models_are_not_exported() -> None:
    simulation = Simulation(workload=NONE, tenants=tenants("small"), instances=served(["small"]))
    with pytest.raises(ConfigError, match=r"tenants\[0\]\.model = small: cannot be exported yet"):
        export(simulation, "llm-d", allow_lossy=True)


# --- what policies see ----------------------------------------------------------------------------


class AtMost(policies.Admission):
    """Admits while fewer requests are in flight at the instances that it sees."""

    def decide(self, request: Any, view: Any) -> bool:  # noqa: ARG002
        return int(view.in_flight.sum()) < len(view)


def test_admission_sees_the_instances_of_the_model() -> None:
    """A full fleet of one model closes the gateway to its requests alone."""
    result = run(
        [0, 0.1, 0.2, 0.3],
        tenant=["small", "small", "large", "large"],
        tenants=tenants("small", "large"),
        instances=served(["small"], ["large"], e2e_s=5),
        gateway=gateway.Gateway(admission=AtMost),
    )
    assert outcomes(result) == ["completed", "rejected", "completed", "rejected"]


def test_limits_by_model_are_limits_of_its_tenants() -> None:
    limit = [gateway.GroupLimit(tenants=["large"], max_in_flight=1), fixed(10)]
    result = run(
        [0, 0, 0, 0],
        tenant=["large", "large", "small", "small"],
        tenants=tenants("small", "large"),
        instances=served(["small"], ["large"]),
        gateway=gateway.Gateway(limit=limit),
    )
    assert ns(result.requests["queue_s"]) == [0, 1_000_000_000, 0, 0]


# --- models that requests name themselves ---------------------------------------------------------


@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "weighted"])
def test_requests_that_name_models_are_like_tenants_that_do(router: str) -> None:
    """The name of a request counts, whatever its tenant names."""
    for seed in trials(20):
        rng = random.Random(f"own {router} {seed}")
        groups = [
            instance.InstanceGroup(
                count=rng.randint(1, 2),
                models=rng.sample(NAMES, rng.randint(1, 2)),
                latency=steady(rng.randint(5, 20)),
                max_num_seqs=rng.randint(1, 4),
                num_kv_blocks=60,
            )
            for _ in range(3)
        ]
        names = sorted({name for group in groups for name in group.models})
        n = 40
        of = rng.choices([*names, ""], k=n)
        settings: dict[str, Any] = {
            "arrival_s": np.sort([rng.randrange(10**9) / 1e9 for _ in range(n)]),
            "input_tokens": np.array([rng.randint(1, 80) for _ in range(n)]),
            "output_tokens": np.array([rng.randint(1, 30) for _ in range(n)]),
            "instances": groups,
            "router": router,
        }
        by_tenant = run(
            **settings,
            tenant=[name or "any" for name in of],
            tenants=tenants(*names, ""),
        )
        default = rng.choice(names)
        own = [name or default for name in of]  # requests that name none have that of the tenant
        by_request = run(**settings, model=of, tenants=[workload.Tenant(name="a", model=default)])
        as_own = run(**settings, model=own)
        assert by_request.requests["model"].tolist() == own
        assert (by_request.requests["e2e_s"] == as_own.requests["e2e_s"]).all()
        unnamed = run(**settings, model=of)
        for name in ("instance", "ttft_s", "e2e_s", "queue_s"):
            assert unnamed.requests[name].tolist() == by_tenant.requests[name].tolist(), (
                seed,
                name,
            )
        assert unnamed.requests["model"].tolist() == of
        figures, by = unnamed.by("model"), by_tenant.by_tenant()
        for name in set(of):
            assert figures[name]["completed"] == by[name or "any"]["completed"]


@pytest.mark.parametrize("streaming", [False, True])
def test_clients_and_submissions_name_models(streaming: bool) -> None:
    clients = [
        workload.Client(name="a", model="small", max_tokens=9),
        workload.Client(name="b", model="large", arrivals={"kind": "closed_loop", "users": 2}),
        workload.Client(name="c"),
    ]
    one = {"input_tokens": 7, "output_tokens": 2}
    simulation = Simulation(
        workload=workload.Synthetic(clients=clients, requests_per_s=30, duration_s=3),
        tenants=[workload.Tenant(model="third")],
        instances=served(["small"], ["large"], ["third"]),
        changes=[{"at_s": 0.5, "submit": [{**one, "model": name} for name in (*NAMES, "")]}],
        metrics={"streaming": streaming},
    )
    result = spillway.simulate(simulation)
    assert result.ledger["completed"] > 100
    if streaming:
        kept = spillway.simulate(simulation.with_({"metrics.streaming": False}))
        assert result.ledger == kept.ledger
        assert [row["completed"] for row in result.instances] == [
            row["completed"] for row in kept.instances
        ]
        return
    where = result.requests["instance"].tolist()
    models = result.requests["model"].tolist()
    assert {NAMES.index(model) for model in models} == {0, 1, 2}
    assert where == [NAMES.index(model) for model in models]
    outside = result.requests["input_tokens"] == 7
    assert sorted(result.requests["model"][outside].tolist()) == sorted([*NAMES, "third"])


def test_generated_traces_keep_the_models() -> None:
    clients = [workload.Client(name=name, model=name) for name in ("small", "large")]
    synthetic = workload.Synthetic(clients=clients, num_requests=100)
    simulation = Simulation(workload=synthetic, instances=served(["small"], ["large"]))
    result = spillway.simulate(simulation)
    again = spillway.simulate(
        simulation.replace(workload=spillway.traffic.generated(synthetic, 0)), 0
    )
    assert (
        again.requests["model"].tolist()
        == spillway.simulate(simulation, 0).requests["model"].tolist()
    )
    assert set(result.requests["model"]) == {"small", "large"}


def unserved(simulation: Simulation) -> list[Finding]:
    return [found for found in spillway.check(simulation) if found.name == "model_not_served"]


def test_requests_of_a_model_that_nothing_serves_are_rejected_and_said() -> None:
    simulation = Simulation(
        workload=spillway.trace(
            arrival_s=[0, 1, 2, 3],
            input_tokens=[5] * 4,
            output_tokens=[5] * 4,
            model=["small", "huge", "", "small"],
        ),
        instances=served(["small"], ["large"]),
    )
    result = spillway.simulate(simulation)
    assert outcomes(result) == ["completed", "rejected", "completed", "completed"]
    assert result.ledger["router_rejected"] == {"no_candidate": 1}
    (found,) = unserved(simulation)
    assert "serves the model 'huge', which 1 requests of the trace (25.0%) name" in str(found)
    any_model = simulation.with_({"instances[1].models": []})
    assert outcomes(spillway.simulate(any_model)) == ["completed"] * 4
    assert not unserved(any_model)


@pytest.mark.parametrize(("path", "settings"), [
    (
        r"workload\.clients\[0\]\.model = 'huge'",
        {"workload": workload.Synthetic(clients=[workload.Client(model="huge")])},
    ),
    (
        r"changes\[0\]\.submit\[0\]\.model = 'huge'",
        {"changes": [{"at_s": 1, "submit": [{"model": "huge"}]}]},
    ),
    (
        r"gateway\.limit\[0\]\.models\[0\] = 'smal'.*small",
        {"gateway": gateway.Gateway(limit=gateway.GroupLimit(models=["smal"]))},
    ),
    (
        r"gateway\.admission\[0\]\.own\[0\]\.model = 'huge'",
        {
            "gateway": {
                "admission": [{"kind": "rate_limit", "key": "model", "own": [{"model": "huge"}]}]
            }
        },
    ),
    (
        r"gateway\.admission\[0\]\.own\[0\]\.model = 'small': must be unset",
        {"gateway": {"admission": [{"kind": "rate_limit", "own": [{"model": "small"}]}]}},
    ),
])  # fmt: skip
def test_settings_that_name_an_unknown_model_are_refused(
    path: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=path):
        Simulation(instances=served(["small"]), **settings)


def test_sessions_submit_requests_of_models() -> None:
    session = spillway.start(
        Simulation(
            workload=NONE.replace(clients=[workload.Client()]), instances=served(["a"], ["b"])
        ),
        open_ended=True,
    )
    for model in ("b", "a", "b"):
        session.submit(input_tokens=10, output_tokens=2, model=model)
    with pytest.raises(ConfigError, match="model = 'c': must be among the models"):
        session.submit(input_tokens=10, output_tokens=2, model="c")
    result = session.finish()
    assert result.requests["instance"].tolist() == [1, 0, 1]
    assert spillway.simulate(session.simulation).requests["model"].tolist() == ["b", "a", "b"]


@pytest.mark.parametrize("key", ["model", "tenant_and_model"])
@pytest.mark.parametrize("window", ["aligned", "sliding", "bucket"])
def test_rates_of_models_are_those_of_tenants_with_their_names(key: str, window: str) -> None:
    """With a tenant per model, and one class per tenant, all keys are the same."""
    rng = random.Random(f"{key} {window}")
    n = 200
    of = rng.choices(["small", "large", ""], k=n)
    settings: dict[str, Any] = {
        "arrival_s": np.sort([rng.randrange(5 * 10**9) / 1e9 for _ in range(n)]),
        "input_tokens": [rng.randint(1, 80) for _ in range(n)],
        "output_tokens": [rng.randint(1, 30) for _ in range(n)],
        "instances": served(["small", "large"]),
    }

    def limited(by: str, field: str, none: str) -> Result:
        admission = gateway.RateLimit(
            key=by,
            window=window,
            window_s=1,
            max_requests=12,
            max_tokens=2000,
            own=[
                gateway.KeyRate(**{field: "large"}, max_requests=5),
                gateway.KeyRate(**{field: none}, max_parallel=1),
            ],
        )
        names = {"tenant": [model or "any" for model in of]} if field == "tenant" else {"model": of}
        return run(**settings, **names, gateway=gateway.Gateway(admission=admission))

    by_tenant = limited("tenant", "tenant", "any")
    by_model = limited(key, "model", "")
    assert 20 < by_tenant.ledger["completed"] < 150
    assert len(set(by_tenant.requests["reason"].tolist())) >= 3
    assert by_model.requests["reason"].tolist() == by_tenant.requests["reason"].tolist()
    np.testing.assert_array_equal(by_model.requests["e2e_s"], by_tenant.requests["e2e_s"])


def test_a_group_limit_holds_requests_of_its_models() -> None:
    """What it holds waits in its tenant's queue."""
    result = run(
        [0, 0, 0, 0],
        tenant=["a", "b", "c", "d"],
        model=["large", "large", "small", ""],
        tenants=[
            *(workload.Tenant(name=name) for name in "abc"),
            workload.Tenant(name="d", model="large"),
        ],
        instances=served(["small"], ["large"]),
        gateway=gateway.Gateway(limit=gateway.GroupLimit(models=["large"], max_in_flight=1)),
    )
    assert ns(result.requests["queue_s"]) == [0, 1_000_000_000, 0, 2_000_000_000]


class OfModel(policies.Admission):
    """Admits requests of one model."""

    def decide(self, request: Any, view: Any) -> bool:  # noqa: ARG002
        return str(request.model) == "large"


def test_policies_see_the_model() -> None:
    result = run(
        [0, 1, 2],
        model=["large", "small", ""],
        tenants=[workload.Tenant(name="a", model="large")],
        instances=served(["small", "large"]),
        gateway=gateway.Gateway(admission=OfModel),
    )
    assert outcomes(result) == ["completed", "rejected", "completed"]
