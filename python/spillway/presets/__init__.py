"""Published scenarios, gateways and servers by name.

    simulation = presets.get("noisy-neighbor").apply()
    simulation = presets.get("vllm-on-eks-post5", workers=None).apply(simulation)

puts a gateway in front of a workload. In a configuration file (see `by_name`) this is

    presets: [noisy-neighbor, {name: vllm-on-eks-post5, workers: null}]

and in a shell `--set 'presets=[noisy-neighbor, vllm-on-eks-post5]'`. A file's own settings win over
its presets; presets in a shell, or beside `simulation` in a study or sweep, win over the file.
Apply a gateway after a scenario, because a scenario replaces all tenants, and the gateway bounds
them. To change a setting of a preset, change the resulting simulation:

    simulation = simulation.with_({"gateway.limit[0].cap_per_worker": 16})

To add a preset:

1. Write a function in `systems/<tool>/presets.py`, or in a new folder, that returns a `Preset`.
2. Give its parameters names with units, and defaults; values out of range are a ConfigError.
3. Append the function to the `PRESETS` of the module.
4. Run `pytest tests/presets tests/systems`, and repeat the published values in a test.
"""

from spillway.presets.by_name import KINDS, get, names
from spillway.presets.descriptions import table
from spillway.presets.preset import Preset

__all__ = ["KINDS", "Preset", "get", "names", "table"]
