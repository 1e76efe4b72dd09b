from support.specimens import Specimen

from spillway import gateway

TWO = [
    gateway.PolicyClass(name="short", quantum_tokens=50, order="wspt"),
    gateway.PolicyClass(name="long", min_uncached_tokens=40, quantum_tokens=100, order="lcfs"),
]

SPECIMEN = Specimen(
    gateway.PolicyClasses,
    examples=(
        gateway.PolicyClasses(),
        gateway.PolicyClasses(classes=TWO),
        gateway.PolicyClasses(
            classes=[gateway.PolicyClass(max_requests_per_worker=1000, order="wspt")],
            requests=[gateway.PolicyRequest(strict_priority=1, priority_jump_s=0.5)],
        ),
    ),
    golden={"policy_classes": gateway.PolicyClasses(classes=TWO)},
)
