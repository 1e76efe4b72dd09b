"""Random valid settings are accepted, and garbage is refused."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.effort import examples
from support.settings import (
    CLASSES,
    KINDED,
    LEAVES,
    NAMES,
    RICH,
    TABLE,
    VALIDATOR,
    at,
    each_class,
    fields_of,
    value_of,
)

from spillway import ConfigError, Simulation

# Settings that another one contradicts or refers to, or with a gap in their range;
# test_violations.py has them one by one.
_DEPENDENT = {
    "name", "tenant", "slo_class", "prefix_group", "prefix_tokens", "values", "weights",
    "min_tokens", "max_tokens", "max_model_len", "horizon_s", "warm_up_s", "priority", *TABLE,
    "initial_instances", "floor", "ceiling", "requests_per_s", "rate_fraction", "replicas",
    "rate_period_s",
    "max_victims", "age_weight_per_s", "lockstep_ranks", "role", "model", "models", "hedge",
    "prefill_max_retries", "target_instances", "max_pool_instances", "breakdowns",
}  # fmt: skip
_OF_POOLS = ("fleet.prefill.", "fleet.decode.")  # need instances with roles
INDEPENDENT = {
    path: field
    for path, field, _ in LEAVES
    if path.rsplit(".", 1)[-1] not in _DEPENDENT and not path.startswith(_OF_POOLS)
}


@examples(200)
@given(data=st.data())
def test_random_valid_changes(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(INDEPENDENT)))
    value = data.draw(value_of(INDEPENDENT[path]))
    changed = RICH.with_({path: value})
    assert at(changed.to_dict(), path) == value
    # Equal servers may differ in where values are from, and, without pools, in bytes per token.
    if not path.endswith((".provenance", ".fitted_states", ".kv_bytes_per_token")):
        assert (changed == RICH) is (at(RICH.to_dict(), path) == value)
    assert changed.with_({path: at(RICH.to_dict(), path)}) == RICH
    assert Simulation.from_dict(changed.to_dict()) == changed
    assert eval(repr(changed), {"__builtins__": {}}, CLASSES) == changed
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert VALIDATOR.is_valid(changed.to_dict())


KEYS = sorted({"kind", "preset", *(name for cls in CLASSES.values() for name in fields_of(cls))})
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, -(10**400), 1e308, -1e308])
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.text(st.characters(categories=["Cs"]), min_size=1)
    | st.binary()
    | st.sampled_from([*(cls.kind for cls in KINDED), *NAMES])
    | st.sampled_from([object(), print, int, Simulation, Ellipsis, np.datetime64("2024-01-01")])
    | st.sampled_from([cls() for cls in CLASSES.values()]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.lists(below, max_size=3).map(tuple)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=3) | st.integers(), below, max_size=4
        )
    ),
    max_leaves=8,
)


@each_class
@examples(60)
@given(data=st.data())
def test_garbage_is_refused_in_an_orderly_way(cls: type[Any], data: st.DataObject) -> None:
    junk = data.draw(JUNK)
    paths = [*fields_of(cls), "kind", "preset", "a.b", "[0]"]
    path = data.draw(st.sampled_from(paths) | st.text("abk.[]01", max_size=6) | st.text(max_size=4))
    for attempt in (
        lambda: cls.from_dict(junk),
        lambda: cls(**{path: junk}),
        lambda: cls().replace(**{path: junk}),
        lambda: cls().with_({path: junk}),
        lambda: cls().with_(junk),
    ):
        made = cls()
        with contextlib.suppress(ConfigError, TypeError):
            made = attempt()
        assert cls.from_dict(made.to_dict()) == made
