"""Envoy: its admission control, overload manager and circuit breakers."""
