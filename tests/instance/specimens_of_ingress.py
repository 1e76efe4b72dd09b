from support.specimens import Specimen

from spillway import instance

CONTROLLED_DELAY = Specimen(
    instance.ControlledDelay,
    ranges={"max_requests": (1, 30), "queue_size": (1, 50)},
    strict={"max_requests": 1, "queue_size": 0},
)
DUAL_LIMIT_GATE = Specimen(
    instance.DualLimitGate,
    ranges={"request_limit": (1, 30), "wait_limit": (1, 10), "queue_size": (1, 50)},
    strict={"request_limit": 1, "wait_limit": 1, "queue_size": 0},
    wall={"request_limit": 1, "queue_size": 1},
)
ENGINE_REQUEST_LIMIT = Specimen(
    instance.EngineRequestLimit,
    ranges={"max_requests": (1, 30), "queue_size": (1, 10)},
    strict={"max_requests": 1, "queue_size": 1},
    wall={"max_requests": 1, "queue_size": 1},
)
OPEN = Specimen(instance.Open)
VLLM_QUEUE_LIMITS = Specimen(
    instance.VllmQueueLimits,
    ranges={"max_num_queued_reqs": (1, 20), "max_num_queued_tokens": (50, 5000)},
    strict={"max_num_queued_reqs": 1},
    wall={"max_num_queued_reqs": 1},
)
