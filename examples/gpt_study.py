"""Whether the best rate of the small GPT moves with width and depth: SP, muP, Depth-muP and CompleteP.

``python -m examples.gpt_study`` runs all of it (under ten minutes on two cores) and writes tables, figures and a
report into ``results/gpt``; ``--small`` runs a minute's worth. What is finished is not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from examples import gpt
from lazyrich.torch import TransferSweep, transfer_sweep

SCHEMES = ["sp", "mup", "depth-mup", "complete-p"]
BASE = {"width": 32, "depth": 2}
FULL: Mapping[str, Any] = {
    "steps": 120,
    "seeds": 3,
    "evaluation": 16,
    "rates": np.geomspace(2**-10, 2**-3, 8),
    "width": [32, 64, 128],
    "depth": [2, 4, 8],
}
SMALL: Mapping[str, Any] = {
    "steps": 6,
    "seeds": 2,
    "evaluation": 2,
    "rates": np.geomspace(2**-9, 2**-5, 3),
    "width": [32, 48],
    "depth": [2, 4],
}


def study(model: ModuleType, folder: Path, size: Mapping[str, Any], **options: Any) -> dict[str, TransferSweep]:
    """Sweep the rate over width and over depth, under every scheme.

    Parameters
    ----------
    model : module
        With ``make_model``, ``data`` and ``loss``.
    folder : Path
        For results and figures.
    size : dict
        ``steps``, ``seeds``, ``evaluation``, ``rates``, and the values of ``width`` and ``depth``.
    **options
        Of :func:`lazyrich.torch.transfer_sweep`.

    Returns
    -------
    dict
        ``"width"`` and ``"depth"`` to their sweeps.
    """
    found = {}
    for axis in ("width", "depth"):
        # over width at the base depth the three schemes with muP's width rules are one; over depth at the base width
        # SP, which has no depth rule either, is muP
        schemes = SCHEMES[:2] if axis == "width" else SCHEMES[1:]
        found[axis] = transfer_sweep(
            model.make_model,
            model.data,
            {axis: size[axis], "scheme": schemes},
            size["rates"],
            loss=model.loss,
            base=BASE,
            steps=size["steps"],
            seeds=size["seeds"],
            evaluation=size["evaluation"],
            folder=folder / axis,
            name=f"{model.__name__.rpartition('.')[2]} over {axis}",
            **options,
        )
        found[axis].plot(folder / f"{axis}.png")
        found[axis].report(folder / f"{axis}.html", command=f"python -m {model.__name__}_study")
        (folder / f"{axis}.txt").write_text(f"{found[axis]}\n", encoding="utf-8")
    return found


def main(model: ModuleType, full: Mapping[str, Any], small: Mapping[str, Any], words: Sequence[str]) -> None:
    """The command of a study."""
    parser = argparse.ArgumentParser(description=f"Learning-rate transfer of {model.__name__}.")
    parser.add_argument("--small", action="store_true", help="a small version of the study")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    parser.add_argument("--results", type=Path, default=Path("results") / model.__name__.rpartition(".")[2])
    chosen = parser.parse_args(words)
    chosen.results.mkdir(parents=True, exist_ok=True)
    progress = (lambda done, of: print(f"\r{done} of {of}", end="", file=sys.stderr)) if sys.stderr.isatty() else None
    size = small if chosen.small else full
    for axis, sweep in study(model, chosen.results, size, workers=chosen.workers, progress=progress).items():
        print(f"over {axis}\n{sweep}\n")


if __name__ == "__main__":
    main(gpt, FULL, SMALL, sys.argv[1:])
