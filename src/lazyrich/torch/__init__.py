"""The parametrization table on a real PyTorch model: plan, apply, audit, coordinate check, transfer sweep.

Needs the extra ``lazyrich[torch]``. A plan compares the model at a base size with the model at the target size and
gives every parameter its numbers; they end up in the initialisation and in plain parameter groups, nowhere else.
"""

from __future__ import annotations

from importlib.util import find_spec

from lazyrich.errors import LazyrichError

if find_spec("torch") is None:
    raise LazyrichError("lazyrich.torch", "PyTorch is not installed", "pip install 'lazyrich[torch]'")

from lazyrich.torch.audit import Audit
from lazyrich.torch.coordinate_check import CoordinateCheck, coordinate_check
from lazyrich.torch.multiplier import Multiplier
from lazyrich.torch.plan import Plan, load_plan
from lazyrich.torch.planning import plan
from lazyrich.torch.transfer_sweep import TransferSweep, transfer_sweep

__all__ = [
    "Audit",
    "CoordinateCheck",
    "Multiplier",
    "Plan",
    "TransferSweep",
    "coordinate_check",
    "load_plan",
    "plan",
    "transfer_sweep",
]
