"""inference-perf: its loads and reports."""
