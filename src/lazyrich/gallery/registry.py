"""All claims, by their ids."""

from __future__ import annotations

from lazyrich.gallery.claim import Claim
from lazyrich.gallery.deep_linear import CLAIMS as DEEP_LINEAR

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in DEEP_LINEAR}
