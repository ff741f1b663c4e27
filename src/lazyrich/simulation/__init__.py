"""Answers by training."""

from lazyrich.simulation.averages import train_averages
from lazyrich.simulation.train import train

__all__ = ["train", "train_averages"]
