"""llm-d: its endpoint picker, flow control and benchmark reports."""
