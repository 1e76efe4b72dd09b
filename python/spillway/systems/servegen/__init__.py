"""ServeGen: its client pools."""
