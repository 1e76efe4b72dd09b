from typing import Any

from support.specimens import Specimen

from spillway import workload

BOUNDS = {"min_tokens": (1, 20), "max_tokens": (20, 600)}

SYNTHETIC = Specimen(
    workload.Synthetic,
    own={
        "requests_per_s": lambda d: d.requests_per_s,
        "num_requests": lambda d: d.num_requests if d.chance(0.5) else None,
        "duration_s": lambda d: d.duration_s,
    },
)
TRACE = Specimen(workload.Trace, own={"session_segments": lambda d: d.rng.choice((0, 0, 1))})
CLOSED_LOOP = Specimen(
    workload.ClosedLoop,
    ranges={"users": (1, 20), "turns": (1, 6)},
    own={"think_time_s": lambda d: d.rng.choice((0, 0.05, 0.3, 2))},
)
CONSTANT = Specimen(workload.Constant)
GAMMA = Specimen(workload.Gamma)
HAWKES = Specimen(workload.Hawkes)
MMPP = Specimen(workload.Mmpp)
POISSON = Specimen(workload.Poisson)
WEIBULL = Specimen(workload.Weibull)


def weigh(drawn: dict[str, Any], drawing: Any) -> None:
    drawn["weights"] = [1.5, 0, 3, 1][: len(drawn["values"])] if drawing.chance(0.5) else []


EMPIRICAL = Specimen(workload.Empirical, ranges={"values": (1, 400)}, together=weigh)
EXPONENTIAL = Specimen(workload.Exponential, ranges={"mean_tokens": (5, 200), **BOUNDS})
FIXED = Specimen(workload.Fixed, ranges={"tokens": (1, 400)})
GAUSSIAN = Specimen(
    workload.Gaussian, ranges={"mean_tokens": (5, 300), "std_dev_tokens": (1, 100), **BOUNDS}
)
LOGNORMAL = Specimen(workload.Lognormal, ranges={"mu": (1, 5), "sigma": (0.1, 1.2), **BOUNDS})
PARETO = Specimen(workload.Pareto, ranges=BOUNDS)
UNIFORM = Specimen(workload.Uniform, ranges=BOUNDS)
