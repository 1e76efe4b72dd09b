"""GuideLLM: its scenarios and reports."""
