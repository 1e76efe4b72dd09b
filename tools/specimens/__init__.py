"""Small files of load generators, written by these tools against a stub server."""
