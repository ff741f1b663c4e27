"""The transfer engine, which finds the best learning rates over a grid of problems and how they move."""
