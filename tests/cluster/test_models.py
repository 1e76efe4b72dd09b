"""Several models behind one gateway: requests go to instances that serve theirs alone."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.effort import trials
from support.runs import fixed, flat, ns, outcomes, run, steady

import spillway
from spillway import ConfigError, Result, Simulation, gateway, instance, policies, workload
from spillway.files.deployments import export

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
