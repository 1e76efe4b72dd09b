"""LMBench: its records of requests."""
