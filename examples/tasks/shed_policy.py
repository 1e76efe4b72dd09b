"""Task j: the policy. It sheds long prompts while the oldest request has waited for too long."""

from dataclasses import dataclass, field

from spillway import policies


@dataclass
class ShedLongest(policies.Admission):
    """Rejects prompts above a length while the oldest queued request has waited too long."""

    max_wait_s: float = field(default=0.5, metadata={"search": (0.05, 2), "unit": "s"})
    max_tokens: int = field(
        default=1500, metadata={"search": (100, 10000), "log": True, "unit": "tokens"}
    )

    def __post_init__(self):
        self.queued = {}  # arrival by id, oldest first

    def decide(self, request, view):
        oldest = next(iter(self.queued.values()), view.now_s)
        if view.now_s - oldest > self.max_wait_s and request.input_tokens > self.max_tokens:
            return policies.Reject("saturated")
        return True

    def commit(self, request, now_s):
        self.queued[request.id] = now_s

    def dispatched(self, request, now_s):
        self.queued.pop(request.id, None)

    def finished(self, request, now_s):  # also after a timeout in the queue
        self.queued.pop(request.id, None)
