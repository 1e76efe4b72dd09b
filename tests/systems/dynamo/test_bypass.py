"""The flags of conditional disaggregation: what is written is read again, and what is refused."""

from __future__ import annotations

import pytest

from spillway import ConfigError, router
from spillway.files.deployments.fields import Fields
from spillway.systems.dynamo import bypass


@pytest.mark.parametrize("rule", ["isl_bounding", "prefill_load", "isl_or_load"])
def test_what_is_written_is_read_again(rule: str) -> None:
    decider = router.Conditional(
        rule=rule, uncached_tokens_threshold=512, uncached_share_threshold=0.5,
        prefill_busy_threshold=4.0, decode_busy_threshold=0.75,
    ).to_dict()  # fmt: skip
    options = bypass.options(decider)
    assert options[bypass.FLAG] is True
    text = options["router-conditional-disagg-config"].strip("'")
    found, unread = bypass.read(
        Fields("frontend", {bypass.FLAG: True, "router-conditional-disagg-config": text}),
        "kv",
        None,
    )
    assert found == decider
    assert unread == []


def test_other_deciders_have_no_flags() -> None:
    assert bypass.options(router.AlwaysRemote().to_dict()) == {}


def test_a_rule_that_reads_the_load_needs_its_threshold() -> None:
    known = {bypass.FLAG: True, "router-conditional-disagg-config": '{"policy": "prefill_load"}'}
    with pytest.raises(ConfigError, match="prefill_busy_threshold: must be set"):
        bypass.read(Fields("frontend", dict(known)), "kv", None)
    decider, _ = bypass.read(Fields("frontend", dict(known)), "kv", 4.0)
    assert decider["prefill_busy_threshold"] == 4.0
