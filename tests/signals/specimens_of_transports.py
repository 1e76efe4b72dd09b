from support.specimens import Specimen

from spillway import signals

LIVE = Specimen(signals.Live)


ON_READ = Specimen(signals.OnRead)


SCRAPED = Specimen(signals.Scraped, ranges={"period_s": (0.005, 3)})
