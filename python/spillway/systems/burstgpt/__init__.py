"""The BurstGPT traces."""
