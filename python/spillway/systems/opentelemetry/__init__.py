"""OpenTelemetry: spans of calls of language models."""
