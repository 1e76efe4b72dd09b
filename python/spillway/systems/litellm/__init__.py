"""LiteLLM: the spend logs of its proxy."""
