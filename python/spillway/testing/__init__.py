"""Unit tests of policies, without a run.

`build` makes a policy the way a gateway does; its `decide` takes microseconds, given requests and
the reports of the instances. State persists between calls:

    from spillway import gateway, testing

    bucket = testing.build(gateway.TokenBucket(capacity_tokens=100, refill_tokens_per_s=10))
    assert bucket.decide(testing.Request(input_tokens=80), now_s=0).admitted
    assert not bucket.decide(testing.Request(input_tokens=80), now_s=1).admitted

`check_policy` runs all the checks that every policy must pass, and `check_conservation` checks the
result of a run.
"""

from spillway.testing.checks import PolicyReport, check_conservation, check_policy
from spillway.testing.policies import (
    Admission,
    BusyMonitor,
    Controller,
    Eviction,
    Fairness,
    Filter,
    Limit,
    Picker,
    Router,
    Scorer,
    UsageLimit,
    build,
)
from spillway.testing.values import (
    ControlDecision,
    Decision,
    InstanceSignals,
    LimitDecision,
    RankLoad,
    Reading,
    Request,
    RoutingDecision,
)

__all__ = [
    "Admission",
    "BusyMonitor",
    "ControlDecision",
    "Controller",
    "Decision",
    "Eviction",
    "Fairness",
    "Filter",
    "InstanceSignals",
    "Limit",
    "LimitDecision",
    "Picker",
    "PolicyReport",
    "RankLoad",
    "Reading",
    "Request",
    "Router",
    "RoutingDecision",
    "Scorer",
    "UsageLimit",
    "build",
    "check_conservation",
    "check_policy",
]
