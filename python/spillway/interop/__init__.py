"""Files of other systems: their traces in, their recorded results to compare with."""
