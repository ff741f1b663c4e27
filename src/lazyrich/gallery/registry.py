"""All claims, by their ids."""

from __future__ import annotations

from lazyrich.gallery.claim import Claim
from lazyrich.gallery.deep_linear import CLAIMS as DEEP_LINEAR
from lazyrich.gallery.depth_classes import CLAIMS as DEPTH_CLASSES
from lazyrich.gallery.depth_transfer import CLAIMS as DEPTH_TRANSFER
from lazyrich.gallery.two_layer import CLAIMS as TWO_LAYER

_DEPTH = sorted((*DEPTH_CLASSES, *DEPTH_TRANSFER), key=lambda claim: int(claim.id[1:]))

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in (*DEEP_LINEAR, *TWO_LAYER, *_DEPTH)}
