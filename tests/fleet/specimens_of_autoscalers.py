from support.specimens import Specimen

from spillway import fleet

NO_AUTOSCALER = Specimen(fleet.NoAutoscaler)


QUEUE_SCALER = Specimen(
    fleet.QueueScaler, ranges={"min_instances": (1, 2), "max_instances": (1, 3), "poll_s": (0.1, 2)}
)
TARGET_SCALER = Specimen(
    fleet.TargetScaler,
    weight=1.8,
    examples=[fleet.TargetScaler(metric="running", target=4, poll_s=0.5, down_stabilization_s=2)],
    ranges={
        "min_instances": (1, 2),
        "max_instances": (1, 3),
        "up_instances": (1, 3),
        "poll_s": (0.1, 2),
    },
)
_OF_LOAD = {"min_instances": (1, 2), "max_instances": (1, 3), "poll_s": (0.1, 2)}
WVA_SCALER = Specimen(fleet.WvaScaler, ranges=_OF_LOAD)
PLANNER_SCALER = Specimen(fleet.PlannerScaler, ranges=_OF_LOAD)
