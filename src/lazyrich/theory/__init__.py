"""Answers without training."""

from lazyrich.theory.deep_linear.predict import predict

__all__ = ["predict"]
