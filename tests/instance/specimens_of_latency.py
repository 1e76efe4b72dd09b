import math
from typing import Any

from support.specimens import Specimen

from spillway import instance

JITTERED = Specimen(instance.Jittered)
LINEAR = Specimen(instance.Linear)
ROOFLINE = Specimen(instance.Roofline)


def tabulate(drawn: dict[str, Any], drawing: Any) -> None:
    axes = {"decode_requests": 40, "prefill_tokens": 900, "context_tokens": 2000}
    for axis, most in axes.items():
        drawn[axis] = sorted(drawing.rng.sample(range(most), drawing.rng.randint(1, 4)))
    cells = math.prod(len(drawn[axis]) for axis in axes)
    drawn["step_us"] = [drawing.rng.uniform(500, 30_000) for _ in range(cells)]


STEP_TABLE = Specimen(instance.StepTable, together=tabulate)
