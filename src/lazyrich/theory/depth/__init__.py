"""Depth: kernels at initialisation, and what linear networks become at infinite width and depth."""
