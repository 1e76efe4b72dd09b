from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(gateway.RejectAll, wall={}, by_events=gateway.RejectAll())
