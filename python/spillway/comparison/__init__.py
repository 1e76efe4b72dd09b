"""Comparisons of systems under common random numbers, with simultaneous intervals."""

from spillway.comparison.comparison import Comparison
from spillway.comparison.paired_runs import DEFAULT_FIGURES, compare
from spillway.comparison.verdict import Outcome, Verdict

__all__ = ["DEFAULT_FIGURES", "Comparison", "Outcome", "Verdict", "compare"]
