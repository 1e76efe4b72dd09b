"""vLLM: its command line, benchmark, step logs and metrics."""
