"""The floating-point precision that JAX computes with, for a while; the user's own setting stays as it is."""

from __future__ import annotations

from typing import Any

import jax


def double_precision(double: bool = True) -> Any:
    """A context in which JAX computes in float64, or in float32."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(double)
    from jax.experimental import enable_x64  # pyright: ignore[reportAttributeAccessIssue]  # older JAX

    return enable_x64(double)
