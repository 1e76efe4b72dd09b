"""The data of runs: columns, figures, files, intervals over several runs."""
