"""All claims, by their ids."""

from __future__ import annotations

from lazyrich.gallery.claim import Claim
from lazyrich.gallery.deep_linear import CLAIMS as DEEP_LINEAR
from lazyrich.gallery.depth import CLAIMS as DEPTH
from lazyrich.gallery.two_layer import CLAIMS as TWO_LAYER

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in (*DEEP_LINEAR, *TWO_LAYER, *DEPTH)}
