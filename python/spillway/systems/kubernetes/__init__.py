"""Kubernetes: its horizontal pod autoscaler."""
