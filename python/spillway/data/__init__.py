"""The data of runs: columns, figures, files, statistics over several runs."""
