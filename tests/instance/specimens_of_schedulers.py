from support.specimens import Specimen

from spillway import instance

PRIORITIES = ("slo_class", "constant", "age", "inverted_age")
FCFS = Specimen(instance.Fcfs, random=lambda _: instance.Fcfs())
PRIORITY_FCFS = Specimen(
    instance.PriorityFcfs,
    examples=[instance.PriorityFcfs(), instance.PriorityFcfs(priority="age")],
    ranges={
        "ClassPriority.priority": (-3, 5),
        "age_weight_per_s": (0.001, 10),
        "preemption_margin": (1, 4),
        "max_preemptions_per_step": (1, 4),
    },
    own={"ClassPriority.name": lambda d: d.rng.choice(d.classes)},
    random=lambda rng: instance.PriorityFcfs(priority=rng.choice(PRIORITIES)),
)
SJF = Specimen(
    instance.Sjf,
    examples=[instance.Sjf(), instance.Sjf(length="output")],
    random=lambda _: instance.Sjf(),
)
LONGEST_PREFIX = Specimen(
    instance.LongestPrefix,
    examples=[instance.LongestPrefix(aging_tokens_per_step=40, max_sorted_requests=6)],
    ranges={"aging_tokens_per_step": (0, 100), "max_sorted_requests": (1, 40)},
    random=lambda rng: instance.LongestPrefix(
        aging_tokens_per_step=rng.choice((0, 0, 1, 16, 100)),
        max_sorted_requests=rng.choice((1, 4, 128, 128)),
    ),
)
REVERSE_PRIORITY = Specimen(
    instance.ReversePriority,
    random=lambda rng: instance.ReversePriority(priority=rng.choice(PRIORITIES)),
)
