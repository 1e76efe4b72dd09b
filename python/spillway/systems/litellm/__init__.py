"""LiteLLM: the spend logs of its proxy, and its limits of parallel requests."""
