"""Answers by training."""

from lazyrich.simulation.train import train

__all__ = ["train"]
