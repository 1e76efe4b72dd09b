"""BLIS (inference-sim): its traces, runs and published configurations."""
