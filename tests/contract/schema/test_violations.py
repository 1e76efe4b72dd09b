"""One error names all invalid settings, alone or in combination."""

from __future__ import annotations

from typing import Any

import pytest

from spillway import ConfigError, Simulation, gateway, instance, workload


def test_all_violations_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Simulation.from_dict(
            {
                "workload": {"kind": "synthetic", "requests_per_s": -1, "clients": [{"nme": 1}]},
                "tenants": [{"name": "gold", "weight": 0}, {"weight": "heavy"}],
                "gateway": {"admission": [{"kind": "tokenbucket"}], "limit": {"kind": "fixed"}},
                "router": {"kind": "least_loaded", "ties": "last"},
                "instances": [{"count": 0, "latency": {"kind": "linear", "beta0_us": -2}}],
                "routr": "round_robin",
                "quantum_ns": 0.5,
                "horizon_s": float("nan"),
            }
        )
    violations = {path: (value, allowed) for path, value, allowed in caught.value.violations}
    assert violations == {
        "workload.requests_per_s": ("-1", "must be > 0 and <= 1000000000 (requests/s)"),
        "workload.clients[0].nme": ("1", "unknown setting; did you mean 'name'?"),
        "tenants[0].weight": ("0", "must be >= 1e-09 and <= 1000000000"),
        "tenants[1].weight": ("'heavy'", "must be a number"),
        "gateway.admission[0].kind": (
            "'tokenbucket'", "unknown kind; did you mean 'token_bucket'?",
        ),
        "router.ties": ("'last'", "must be one of first, random"),
        "instances[0].count": ("0", "must be >= 1 and <= 100000 (instances)"),
        "instances[0].latency.beta0_us": ("-2", "must be >= 0 and <= 1000000000000 (us)"),
        "routr": ("'round_robin'", "unknown setting; did you mean 'router'?"),
        "quantum_ns": ("0.5", "must be a whole number"),
        "horizon_s": ("nan", "must be a finite number > 0 and <= 3200000000 (s)"),
    }  # fmt: skip
    lines = str(caught.value).splitlines()
    assert len(lines) == len(violations)
    for (path, value, allowed), line in zip(caught.value.violations, lines, strict=True):
        assert line == f"{path} = {value}: {allowed}"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("cls", "given_settings", "path"),
    [
        (workload.Gaussian, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Exponential, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Lognormal, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Empirical, {"values": []}, "values"),
        (workload.Empirical, {"values": [1], "weights": [1, 2]}, "weights"),
        (workload.Empirical, {"weights": [0]}, "weights"),
        (workload.Client, {"prefix_group": "a"}, "prefix_tokens"),
        (workload.Client, {"prefix_tokens": 4}, "prefix_tokens"),
        (workload.Client, {"rate_period_s": 4}, "rate_period_s"),
        (workload.Client, {"rate_profile": [{"factor": 0}]}, "rate_profile"),
        (workload.Client, {"rate_profile": [{"at_s": 2}, {"at_s": 1}]}, "rate_profile[1].at_s"),
        (workload.Pareto, {"min_tokens": 5, "max_tokens": 1}, "max_tokens"),
        (workload.Mmpp, {"states": []}, "states"),
        (workload.Synthetic, {"clients": []}, "clients"),
        (workload.Synthetic, {"clients": [{"name": "a"}, {"name": "a"}]}, "clients[1].name"),
        (
            workload.Synthetic,
            {
                "clients": [
                    {"name": "a", "prefix_group": "g", "prefix_tokens": 1},
                    {"name": "b", "prefix_group": "g", "prefix_tokens": 2},
                ]
            },
            "clients[1].prefix_tokens",
        ),
        (gateway.Gateway, {"admission": []}, "admission"),
        (gateway.Gateway, {"bands": []}, "bands"),
        (gateway.Gateway, {"bands": [{"priority": 1}] * 2}, "bands[1].priority"),
        (instance.InstanceGroup, {"max_model_len": 1}, "max_model_len"),
        (instance.ProcessorSharing, {"ttft_s": [1]}, "ttft_s"),
        (
            instance.ProcessorSharing,
            {"concurrency": [1, 1], "e2e_s": [1, 1], "ttft_s": [1, 1]},
            "concurrency[1]",
        ),
        (instance.StepTable, {"step_us": [1]}, "step_us"),
        (instance.StepTable, {"context_tokens": [], "step_us": []}, "context_tokens"),
        (instance.StepTable, {"prefill_tokens": [1, 1]}, "prefill_tokens[1]"),
        (Simulation, {"instances": []}, "instances"),
        (Simulation, {"tenants": [{"name": "default"}] * 2}, "tenants[1].name"),
        (Simulation, {"slo_classes": [{}, {}]}, "slo_classes[1].name"),
        (Simulation, {"horizon_s": 1, "warm_up_s": 1}, "warm_up_s"),
        (Simulation, {"tenants": [{"name": "gold"}]}, "workload.clients[0].tenant"),
        (Simulation, {"slo_classes": [{"name": "gold"}]}, "workload.clients[0].slo_class"),
    ],
)
def test_settings_that_contradict_each_other(
    cls: type[Any], given_settings: dict[str, Any], path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        cls.from_dict(given_settings)
    ((found, _, allowed),) = caught.value.violations
    assert found.removeprefix(".") == path
    assert allowed


def test_path_of_a_contradiction_begins_with_a_name() -> None:
    with pytest.raises(ConfigError) as caught:
        gateway.Gateway(admission=[])
    assert caught.value.violations[0][0] == "admission"


@pytest.mark.parametrize("bad", [None, 1, "router: round_robin", [1], [{}]])
def test_only_mappings_are_settings(bad: Any) -> None:
    with pytest.raises(ConfigError, match="must be a mapping of settings"):
        Simulation.from_dict(bad)
