from support.specimens import Specimen

from spillway import fleet

_SOON = {"for_s": (0.01, 2.0)}
CRASH = Specimen(fleet.Crash, examples=[fleet.Crash(for_s=1)], ranges=_SOON)
HANG = Specimen(fleet.Hang, examples=[fleet.Hang(for_s=1)], ranges=_SOON)
KV_LOSS = Specimen(fleet.KvLoss, examples=[fleet.KvLoss(instance=0, cached_only=True)])
GATEWAY_CRASH = Specimen(fleet.GatewayCrash, examples=[fleet.GatewayCrash(for_s=1)], ranges=_SOON)
SLOWDOWN = Specimen(
    fleet.Slowdown,
    examples=[fleet.Slowdown(for_s=1, factor=3)],
    ranges={**_SOON, "factor": (0.5, 10)},
)
