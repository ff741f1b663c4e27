"""Which software made a result, and when."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from functools import cache
from importlib import metadata


def provenance() -> dict[str, str]:
    """Versions of lazyrich, Python and the numerical libraries, and the time (UTC, ISO 8601)."""
    return {**_versions(), "created": datetime.now(UTC).isoformat(timespec="seconds")}


@cache
def _versions() -> dict[str, str]:
    from lazyrich import __version__

    libraries = {name: metadata.version(name) for name in ("numpy", "scipy", "jax", "optax")}
    return {"lazyrich": __version__, "python": platform.python_version(), **libraries}
