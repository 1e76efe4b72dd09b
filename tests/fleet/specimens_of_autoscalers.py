from support.specimens import Specimen

from spillway import fleet

NO_AUTOSCALER = Specimen(fleet.NoAutoscaler)


QUEUE_SCALER = Specimen(
    fleet.QueueScaler, ranges={"min_instances": (1, 2), "max_instances": (1, 3), "poll_s": (0.1, 2)}
)
