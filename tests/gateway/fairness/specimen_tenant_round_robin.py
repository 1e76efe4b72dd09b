from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(gateway.TenantRoundRobin, golden={"round_robin": gateway.TenantRoundRobin()})
