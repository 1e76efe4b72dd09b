"""Short forms of settings, and presets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.settings import CLASSES, RICH

import spillway
from spillway import ConfigError, Simulation, gateway, instance, router, workload


@pytest.mark.parametrize(
    "short",
    [
        "token_bucket",
        {"kind": "token_bucket"},
        gateway.TokenBucket(),
        ["token_bucket"],
        ("token_bucket",),
        [{"kind": "token_bucket"}],
        (gateway.TokenBucket(),),
        (kind for kind in ["token_bucket"]),
        np.array(["token_bucket"]),
    ],
    ids=lambda short: type(short).__name__,
)
def test_short_forms_of_a_chain(short: Any) -> None:
    assert gateway.Gateway(admission=short).admission == (gateway.TokenBucket(),)


def test_short_forms_of_nouns() -> None:
    one = Simulation(
        instances={"count": 2, "latency": "linear"},
        tenants=({"name": "default", "weight": 2},),
        gateway={"bands": gateway.Band(priority=1), "limit": "fixed"},
    )
    assert one.instances == (instance.InstanceGroup(count=2, latency=instance.Linear()),)
    assert one.tenants == (workload.Tenant(weight=2),)
    assert one.gateway == gateway.Gateway(
        bands=[gateway.Band(priority=1)], limit=gateway.FixedLimit()
    )


@pytest.mark.parametrize(
    ("given_settings", "path", "clue"),
    [
        ({"router": {}}, "router", "must name its kind; one of round_robin, least_loaded"),
        ({"router": 3}, "router", "must name its kind"),
        ({"router": None}, "router", "must name its kind"),
        ({"router": "lest_loaded"}, "router.kind", "did you mean 'least_loaded'?"),
        ({"router": {"kind": "zzz"}}, "router.kind", "one of round_robin, least_loaded"),
        ({"router": gateway.TokenBucket()}, "router.kind", "unknown kind"),
        ({"router": ["round_robin"]}, "router", "must name its kind"),
        ({"gateway": {"admission": None}}, "gateway.admission", "must be a list"),
        ({"gateway": "token_bucket"}, "gateway", "must be a mapping of settings"),
        ({"gateway": gateway.Band()}, "gateway.priority", "unknown setting"),
        ({"workload": {"clients": []}}, "workload", "must name its kind"),
        ({"tenants": ["gold"]}, "tenants[0]", "must be a mapping of settings"),
    ],
)
def test_long_forms_are_checked(given_settings: dict[str, Any], path: str, clue: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Simulation.from_dict(given_settings)
    found, _, allowed = caught.value.violations[0]
    assert found == path
    assert clue in allowed


def test_class_in_place_of_an_object_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"^router = .*LeastLoaded") as caught:
        Simulation(router=router.LeastLoaded)
    assert "_to_value" not in str(caught.value)


def test_presets() -> None:
    presets = instance.Linear.presets()
    assert list(presets) == instance.Linear._describe()["presets"]
    assert len(set(presets.values())) == len(presets) > 10
    for name, values in presets.items():
        assert instance.Linear.preset(name) == values
        assert instance.Linear(preset=name) == values
        assert instance.Linear.from_dict({"kind": "linear", "preset": name}) == values
        # Settings that are given win over the preset's, wherever they stand.
        for mixed in ({"preset": name, "beta0_us": 7}, {"beta0_us": 7, "preset": name}):
            assert instance.Linear.from_dict(mixed) == values.replace(beta0_us=7)
    group = RICH.with_(
        {"instances[0].latency": {"kind": "linear", "preset": "llama-3.1-8b-h100-tp1"}}
    ).instances[0]
    assert group.latency == presets["llama-3.1-8b-h100-tp1"]
    assert instance.Linear() == presets["llama-3.1-8b-h100-tp2"]


@pytest.mark.parametrize("bad", ["llama-3.1-8b-h100-tp3", "", 1, None])
def test_unknown_presets_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"^latency\.preset = .*unknown preset") as caught:
        instance.InstanceGroup(latency={"kind": "linear", "preset": bad})
    if isinstance(bad, str):
        assert "llama-3.1-8b-h100-tp2" in str(caught.value)


def survives(code: str) -> None:
    """Runs code in a separate process, because the code may end the process."""
    path = str(Path(spillway.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-500:])


def test_preset_of_a_class_without_presets() -> None:
    names = [
        f"{cls.__module__}.{cls.__name__}"
        for cls in CLASSES.values()
        if "presets" not in cls._describe()
    ]
    survives(
        "import spillway\n"
        f"for cls in ({', '.join(names)}):\n"
        "    try:\n"
        "        cls(preset='a')\n"
        "    except spillway.ConfigError as error:\n"
        "        assert 'unknown setting' in str(error)\n"
        "    else:\n"
        "        raise AssertionError(cls)\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        "value = []; value.append(value)",
        "value = {}; value['router'] = value",
        "value = []\nfor _ in range(100_000): value = [value]",
    ],
    ids=["list in itself", "mapping in itself", "deep"],
)
def test_bottomless_values_are_refused(value: str) -> None:
    survives(
        f"import spillway\n{value}\n"
        "try:\n"
        "    spillway.Simulation(tenants=value)\n"
        "except spillway.ConfigError:\n"
        "    pass\n"
    )


def test_replace_takes_a_preset_or_refuses_it() -> None:
    name = "llama-3.1-8b-h100-tp4"
    try:
        changed = instance.Linear().replace(preset=name)
    except ConfigError:
        return
    assert changed == instance.Linear.preset(name)
