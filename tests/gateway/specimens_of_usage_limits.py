from support.specimens import Specimen

from spillway import gateway

PRIORITY_HOLDBACK = Specimen(gateway.PriorityHoldback)
SOFT_REFLECTIVE = Specimen(gateway.SoftReflective)
STATIC_CEILINGS = Specimen(gateway.StaticCeilings)
