"""Answers without training."""

from lazyrich.theory.deep_linear.averages import predict_averages
from lazyrich.theory.deep_linear.predict import predict

__all__ = ["predict", "predict_averages"]
