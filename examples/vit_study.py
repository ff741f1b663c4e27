"""The same study as of the small GPT, of the small vision transformer: ``python -m examples.vit_study``."""

from __future__ import annotations

import sys

import numpy as np

from examples import vit
from examples.gpt_study import FULL, SMALL, main

if __name__ == "__main__":
    main(vit, {**FULL, "rates": np.geomspace(2**-12, 2**-3, 10)}, SMALL, sys.argv[1:])
