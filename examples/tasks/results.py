"""Task i: results to pandas, Parquet and CSV, and a table that one could publish.

It has a figure, its value, interval and unit in each row.
"""

import sys
from pathlib import Path

import pandas as pd

import spillway

one = spillway.load(Path(__file__).parents[1] / "mixed_targets.yaml")
if "--quick" in sys.argv:
    one = one.with_({"workload.num_requests": 2000})
results = spillway.simulate(one, seeds=range(5))
first = results[0]
frame = first.requests.to_frame()
print(frame.groupby("slo_class")["ttft_s"].describe(percentiles=[0.5, 0.99]).round(3))
frame.to_csv("pandas.csv", index=False)
first.requests.to_frame().to_parquet("requests.parquet")
first.write("out")  # summary.json and requests.csv

UNITS = {
    "goodput": "share of offered requests",
    "request_throughput": "requests/s",
    "output_throughput": "tokens/s",
    "p99_ttft_ms": "ms",
    "p99_tpot_ms": "ms",
    "cache_hit_rate": "share of prompt tokens",
}
summary = results.summary()
rows = [
    (name, summary[name].mean, summary[name].low, summary[name].high, summary[name].n, unit)
    for name, unit in UNITS.items()
]
table = pd.DataFrame(rows, columns=["figure", "mean", "low 95%", "high 95%", "seeds", "unit"])
table.to_csv("table.csv", index=False)
table.to_parquet("table.parquet")
print(table.to_string(index=False, float_format="{:.4g}".format))
for tenant, of in results.by_tenant().items():
    print(tenant, of["goodput"])
systems = {"as it is": one, "admit all": one.with_({"gateway.admission": "always_admit"})}
print(spillway.compare(systems, seeds=3, figures=["goodput"]).to_frame().T)
print(results)
first.write("out_parquet", requests="parquet")
