"""Model servers: model x accelerator x engine -> step times, KV memory, batch limits.

    server = Server(model="llama-3.3-70b", gpu="h100", tp=4)
    simulation = Simulation(workload=…, instances=server)

In a configuration file, with other settings of the instance beside it:

    instances: {server: {model: llama-3.3-70b, gpu: h100, tp: 4}, count: 2}

or `server: profile.yaml`, a file of `spillway calibrate`. `models.yaml` and `accelerators.yaml`
hold the catalog, each number with its source; `engine` what vLLM chooses by version, `memory` how
much is left for KV, `physics` the step times, `efficiencies.yaml` what was measured.
"""

from spillway.servers.accelerator import Accelerator, accelerator, accelerators
from spillway.servers.engine import DEFAULT_ENGINE
from spillway.servers.model import Model, model, models
from spillway.servers.server import Origin, Server, with_servers

__all__ = [
    "DEFAULT_ENGINE",
    "Accelerator",
    "Model",
    "Origin",
    "Server",
    "accelerator",
    "accelerators",
    "model",
    "models",
    "with_servers",
]
