"""Analyses of the results of runs."""
