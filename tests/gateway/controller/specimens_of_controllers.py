from support.specimens import Specimen

from spillway import gateway

STATIC = Specimen(gateway.StaticLimit)
AIMD = Specimen(
    gateway.Aimd,
    examples=[gateway.Aimd(target_s=0.2)],
    random=lambda rng: gateway.Aimd(target_s=rng.choice((0.1, 1))),
    cutting=[
        gateway.Aimd(target_s=1e-3),
        gateway.Aimd(target_s=1e-3, decrease="step", decrease_step=100),
    ],
)
MIMD = Specimen(
    gateway.Mimd,
    examples=[gateway.Mimd(target_s=0.2)],
    random=lambda _: gateway.Mimd(),
    cutting=[gateway.Mimd(target_s=1e-3)],
)
PID = Specimen(
    gateway.Pid,
    examples=[gateway.Pid(target_s=0.2, ki_per_s=0.1, kd_s=0.5)],
    cutting=[gateway.Pid(target_s=1e-3)],
)
VEGAS = Specimen(gateway.Vegas, random=lambda _: gateway.Vegas(), cutting=[gateway.Vegas()])
GRADIENT2 = Specimen(
    gateway.Gradient2,
    ranges={"long_window": (10, 100)},
    random=lambda _: gateway.Gradient2(),
    cutting=[gateway.Gradient2()],
)
ENVOY_GRADIENT = Specimen(
    gateway.EnvoyGradient,
    examples=[
        gateway.EnvoyGradient(interval_s=20, request_count=5),
        gateway.EnvoyGradient(fixed_min_rtt_s=0.05),
    ],
    ranges={"request_count": (5, 30), "interval_s": (0.5, 10)},
    cutting=[gateway.EnvoyGradient()],
)
CONCUR = Specimen(gateway.Concur, cutting=[gateway.Concur(high_kv_utilization=0)])
