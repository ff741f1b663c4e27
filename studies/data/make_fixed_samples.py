"""Writes fixed_samples.csv: 20 Gaussian samples of 40 inputs with Gaussian targets (numpy seed 0)."""

from pathlib import Path

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
table = pd.DataFrame(rng.standard_normal((20, 40)), columns=[f"x{index}" for index in range(40)])
table["y"] = rng.standard_normal(20)
table.to_csv(Path(__file__).with_name("fixed_samples.csv"), index=False, float_format="%.12g")
