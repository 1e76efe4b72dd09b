"""NVIDIA Dynamo: its traces, router configuration, counters and request rejection."""
