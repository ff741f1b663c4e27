"""Two-layer linear networks that learn a matrix: mixed lazy-active dynamics.

The law and a network are the same gradient steps on a factor pair that start from different factors, so this package is
neither theory nor simulation alone.
"""

from lazyrich.mixed_dynamics.costs import Cost
from lazyrich.mixed_dynamics.run import two_layer

__all__ = ["Cost", "two_layer"]
