"""What is wrong with settings and runs, and what to try: one registry of diagnoses."""
