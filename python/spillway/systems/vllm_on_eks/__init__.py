"""The gateway of vllm-on-eks: its settings and published experiments."""
