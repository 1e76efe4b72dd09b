"""NVIDIA AIPerf: its traces, results and exports."""
