from support.specimens import Specimen

from spillway import gateway

DUAL_LIMIT = Specimen(
    gateway.DualLimit,
    ranges={"max_in_flight": (1, 64), "max_awaiting_first_token": (1, 32)},
    movable=True,
    random=lambda rng: gateway.DualLimit(
        max_in_flight=rng.randint(5, 50), max_awaiting_first_token=rng.randint(1, 10)
    ),
)
FIXED_LIMIT = Specimen(
    gateway.FixedLimit,
    ranges={"max_in_flight": (1, 64)},
    movable=True,
    random=lambda rng: gateway.FixedLimit(max_in_flight=rng.randint(2, 60)),
)
GROUP_LIMIT = Specimen(
    gateway.GroupLimit,
    ranges={"max_in_flight": (1, 64)},
    movable=True,
    random=lambda rng: gateway.GroupLimit(
        max_in_flight=rng.randint(1, 20),
        tenants=rng.choice(([], ["a"], ["a", "c"])),
        slo_classes=rng.choice(([], ["batch"])),
    ),
    own={
        "tenants": lambda drawing: drawing.rng.sample(drawing.tenants, drawing.rng.choice((0, 1))),
        "slo_classes": lambda d: d.rng.sample(d.classes, d.rng.choice((0, 1))),
    },
)
PER_TENANT = Specimen(
    gateway.PerTenant,
    ranges={"max_in_flight": (1, 32)},
    random=lambda rng: gateway.PerTenant(max_in_flight=rng.randint(1, 20)),
)
PREFILL_BUSY = Specimen(
    gateway.PrefillBusy,
    random=lambda rng: gateway.PrefillBusy(threshold=rng.choice((0, 0.1, 1))),
)
SATURATION = Specimen(
    gateway.Saturation,
    random=lambda rng: gateway.Saturation(
        detector=rng.choice(("utilization", "concurrency")),
        queue_depth_threshold=rng.choice((1, 5)),
        max_concurrency=rng.choice((5, 30)),
    ),
)
TOKEN_BUDGET = Specimen(
    gateway.TokenBudget,
    ranges={"max_tokens_in_flight": (100, 20_000), "assumed_output_tokens": (1, 100)},
    movable=True,
    random=lambda rng: gateway.TokenBudget(
        max_tokens_in_flight=rng.choice((2000, 8000)),
        assumed_output_tokens=rng.choice((0, 50)),
        output_length=rng.choice(("fixed", "predicted", "max_tokens")),
    ),
)
UNLIMITED = Specimen(gateway.Unlimited)
WORKER_BUDGET = Specimen(
    gateway.WorkerBudget,
    ranges={"cap_per_worker": (1, 32), "workers": (1, 4)},
    movable=True,
    random=lambda rng: gateway.WorkerBudget(cap_per_worker=rng.randint(1, 30)),
)
