from support.specimens import Specimen

from spillway import workload

SCALE_RATE = Specimen(
    workload.ScaleRate,
    examples=[workload.ScaleRate(factor=2)],
    ranges={"factor": (0.5, 3)},
    inside=["factor"],
)
THIN = Specimen(
    workload.Thin,
    examples=[workload.Thin(keep_share=0.5)],
    ranges={"keep_share": (0.6, 1)},
    inside=["keep_share"],
)
SUPERPOSE = Specimen(
    workload.Superpose,
    examples=[workload.Superpose(copies=3)],
    ranges={"copies": (1, 3)},
    inside=["copies"],
)
UPSAMPLE = Specimen(
    workload.Upsample,
    examples=[workload.Upsample(factor=1.5, jitter_s=0.5)],
    ranges={"factor": (1, 3), "jitter_s": (0, 2)},
    inside=["factor", "jitter_s"],
)
WINDOW = Specimen(
    workload.Window,
    examples=[workload.Window(start_s=20, duration_s=30)],
    ranges={"start_s": (0, 0.001), "duration_s": (5, 50)},
    inside=["start_s", "duration_s"],
)
SHIFT = Specimen(
    workload.Shift, examples=[workload.Shift(by_s=3)], ranges={"by_s": (0, 2)}, inside=["by_s"]
)
RELABEL = Specimen(
    workload.Relabel,
    examples=[workload.Relabel(from_tenant="a", tenant="gold", share=0.5)],
    ranges={"min_input_tokens": (0, 100), "max_input_tokens": (100, 400)},
    own={
        "from_tenant": lambda d: d.rng.choice(("", *d.tenants)),
        "from_slo_class": lambda d: d.rng.choice(("", *d.classes)),
        "tenant": lambda d: d.rng.choice(("", *d.tenants)),
        "slo_class": lambda d: d.rng.choice(("", *d.classes)),
    },
)
CAP_LENGTHS = Specimen(
    workload.CapLengths,
    examples=[workload.CapLengths(input_tokens=100, output_tokens=50)],
    ranges={"input_tokens": (1, 400), "output_tokens": (1, 150)},
)
DRAW_LENGTHS = Specimen(
    workload.DrawLengths,
    examples=[workload.DrawLengths(output_tokens=workload.Uniform(max_tokens=40))],
    weight=6,
    probabilities={"input_tokens": 0.9, "output_tokens": 0.9},
)
SCALE_PART = Specimen(
    workload.ScalePart,
    examples=[
        workload.ScalePart(tenant="a", start_s=20, duration_s=60, rate_factor=1.5, input_factor=2)
    ],
    ranges={
        "start_s": (0, 0.001),
        "duration_s": (5, 50),
        "rate_factor": (0.5, 2),
        "input_factor": (0.5, 1.5),
        "output_factor": (0.5, 1.5),
        "jitter_s": (0, 2),
    },
    own={
        "tenant": lambda d: d.rng.choice(("", *d.tenants)),
        "slo_class": lambda d: d.rng.choice(("", *d.classes)),
    },
)
BLOCK_RESAMPLE = Specimen(
    workload.BlockResample,
    examples=[workload.BlockResample(block_s=10)],
    own={
        "block_s": lambda d: d.duration_s * d.rng.uniform(0.05, 0.5),
        "duration_s": lambda d: d.duration_s * d.rng.uniform(0.5, 2) if d.chance(0.3) else None,
    },
)
