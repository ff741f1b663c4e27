"""Residual networks that are really trained."""
