from typing import Any

from support.specimens import Specimen

from spillway import instance


def tabulate(drawn: dict[str, Any], drawing: Any) -> None:
    size = drawing.rng.randint(1, 4)
    drawn["concurrency"] = sorted(drawing.rng.sample(range(40), size))
    for column, fastest in (("e2e_s", 0.2), ("ttft_s", 0.02)):
        drawn[column] = sorted(fastest * drawing.rng.uniform(0.5, 20) for _ in range(size))


PROCESSOR_SHARING = Specimen(
    instance.ProcessorSharing,
    ranges={"reference_output_tokens": (20, 500)},
    inside=["reference_output_tokens"],
    together=tabulate,
)
STEP_LOOP = Specimen(instance.StepLoop)
