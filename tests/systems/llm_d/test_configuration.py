"""The loader of llm-d's configurations. The recordings: `parity/test_llm_d.py`."""

from __future__ import annotations

import pytest

from spillway import ConfigError
from spillway.systems.llm_d.configuration import Configuration, load

HEAD = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"


def loaded(text: str) -> Configuration:
    return load(HEAD + text, "epp.yaml")


def entries(found: Configuration) -> list[tuple[str, float | None]]:
    (profile,) = found.profiles
    return [(entry.plugin.name, entry.weight) for entry in profile.entries]


def test_only_an_empty_text_has_the_default_scorers() -> None:
    assert entries(load("", "x")) == [
        ("queue-scorer", 2),
        ("kv-cache-utilization-scorer", 2),
        ("prefix-cache-scorer", 3),
        ("max-score-picker", None),
    ]
    assert entries(loaded("")) == [("max-score-picker", None)]


def test_several_profiles_need_a_handler_of_their_own() -> None:
    text = """\
plugins: [{type: HANDLER}, {type: queue-scorer}, {type: random-picker}]
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: queue-scorer, weight: 2}]}
- {name: decode, plugins: []}
"""
    found = loaded(text.replace("HANDLER", "disagg-profile-handler"))
    assert [profile.name for profile in found.profiles] == ["prefill", "decode"]
    # The picker that is listed completes both.
    assert {profile.entries[-1].plugin.type for profile in found.profiles} == {"random-picker"}
    with pytest.raises(ConfigError, match="need a profile handler for several"):
        loaded(text.replace("HANDLER", "single-profile-handler"))
    with pytest.raises(ConfigError, match="one profile handler at most"):
        loaded("plugins: [{type: single-profile-handler}, {type: disagg-profile-handler}]")


def test_a_detector_is_in_force_from_both_places_without_the_gate() -> None:
    detector = "{pluginRef: concurrency-detector}"
    plugins = "plugins: [{type: concurrency-detector}]\n"
    for text in (
        f"flowControl: {{saturationDetector: {detector}}}",
        f"saturationDetector: {detector}",
    ):
        found = loaded(plugins + text)
        assert (found.detector.type, found.flow_control, found.ignored) == (
            "concurrency-detector",
            None,
            {},
        )
    assert loaded(plugins).detector.type == "utilization-detector"
    with pytest.raises(ConfigError, match="saturationDetector = 'concurrency-detector': must be"):
        loaded(f"saturationDetector: {detector}")


def test_a_negative_band_has_its_own_template() -> None:
    text = """\
featureGates: [flowControl]
flowControl:
  defaultPriorityBand: {maxRequests: 5}
  defaultNegativePriorityBand: {maxRequests: 7}
  priorityBands: [{priority: 3}]
"""
    flow = loaded(text).flow_control
    assert flow
    assert {band.priority: band.max_requests for band in flow.bands} == {3: 5000, 0: 5}
    assert flow.negative.max_requests == 7


def test_a_section_without_its_gate_is_decoded_and_not_checked() -> None:
    assert loaded("flowControl: {maxRequests: -1}").ignored == {"maxRequests": -1}
    with pytest.raises(ConfigError, match="maxRequests = 'x': must be a quantity"):
        loaded("flowControl: {maxRequests: x}")
    with pytest.raises(ConfigError, match="flowControl: nothing: is an unknown field"):
        loaded("flowControl: {nothing: 1}")
