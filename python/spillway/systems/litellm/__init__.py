"""LiteLLM: the spend logs of its proxy, the rate limits of its keys, its parallel requests."""
