from support.specimens import Specimen

from spillway import gateway

SPECIMEN = Specimen(gateway.GlobalFifo, golden={"global_fifo": gateway.GlobalFifo()})
