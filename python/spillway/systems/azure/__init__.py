"""The Azure LLM inference traces."""
