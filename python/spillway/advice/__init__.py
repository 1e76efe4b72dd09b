"""From a log of requests to settings that keep an SLO: what `spillway.advise` returns."""

from spillway.advice.advice import Advice

__all__ = ["Advice"]
