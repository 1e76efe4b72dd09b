"""Logs of calls of the OpenAI API."""
