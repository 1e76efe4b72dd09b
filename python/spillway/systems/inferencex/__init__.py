"""InferenceX: its published results."""
