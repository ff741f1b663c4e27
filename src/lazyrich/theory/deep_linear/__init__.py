"""Dynamical mean field theory of deep linear networks, solved in one pass over the steps."""
