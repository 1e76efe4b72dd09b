"""Outside systems: a folder for each, with everything that Spillway knows of it."""
