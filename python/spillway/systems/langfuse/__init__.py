"""Langfuse: exports of its generations."""
