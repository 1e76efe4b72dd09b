"""Envoy AI Gateway: its limits of tokens."""
