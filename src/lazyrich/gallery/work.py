"""Pieces of work of studies that are neither transfer studies nor phase diagrams, as cells of the engine."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lazyrich.comparison import Comparison, compare
from lazyrich.trajectory import Trajectory
from lazyrich.transfer.cells import code_version, content_key

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Work:
    """One piece of work: the name of a function of :data:`lazyrich.gallery.works.WORKS`, and plain arguments."""

    name: str
    arguments: dict[str, Any]

    def key(self) -> str:
        """A name for the result: a hash of everything that decides it, the code's version included."""
        return content_key({**asdict(self), "code": code_version(), "works": _version_of_works()})

    def execute(self) -> Arrays:
        """Do the work; what the function gives, and the ``seconds`` that it took."""
        from lazyrich.gallery.works import WORKS

        started = time.perf_counter()
        function: Callable[..., Arrays] = WORKS[self.name]
        return {**function(**self.arguments), "seconds": np.asarray(time.perf_counter() - started)}


@cache
def _version_of_works() -> str:
    return hashlib.sha256(Path(__file__).with_name("works.py").read_bytes()).hexdigest()[:16]


def packed(trajectory: Trajectory) -> np.ndarray:
    """A trajectory without its kernels as bytes in an array: JSON, as NetCDF files cannot be made on a worker."""
    dataset = trajectory.to_dataset()
    plain = dataset.drop_dims([name for name in ("step_prime",) if name in dataset.dims]).to_dict()
    return np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)


def unpacked(array: np.ndarray) -> Trajectory:
    """The inverse of :func:`packed`."""
    import xarray

    return Trajectory.from_dataset(xarray.Dataset.from_dict(json.loads(array.tobytes())))


def comparison_of(arrays: Arrays, label: str) -> Comparison:
    """What the work ``compare`` gave."""
    return compare(unpacked(arrays["predicted"]), unpacked(arrays["trained"]), label)
