from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(gateway.AlwaysAdmit, by_events=gateway.AlwaysAdmit())
