"""Models to try lazyrich.torch on: a small GPT and a small vision transformer, with data that need no download."""
