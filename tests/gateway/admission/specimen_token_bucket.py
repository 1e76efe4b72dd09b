from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(
    gateway.TokenBucket,
    ranges={"capacity_tokens": (100, 50_000)},
    strict={"capacity_tokens": 0.0},
    wall={"capacity_tokens": 0},
    by_events=gateway.TokenBucket(capacity_tokens=3000, refill_tokens_per_s=4000),
)
