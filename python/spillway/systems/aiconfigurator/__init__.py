"""NVIDIA AIConfigurator: measured latencies of servers."""
