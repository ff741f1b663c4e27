"""A sweep of residual networks against the same trainings one after another: ``python -m benchmarks.residual``.

17 rates x 3 seeds x 5 depths (4 to 64 blocks), width 64, batch 64, 100 steps of Adam. Of the trainings one after
another some are timed at every depth, in turn with the sweep, and multiplied.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import lazyrich
from benchmarks.run import seconds
from lazyrich.problem.files import ResidualStudy
from lazyrich.simulation.residual.training import train_networks
from lazyrich.transfer.sweep import run_sweep

DEPTHS = [4, 8, 16, 32, 64]
TABLES = {
    "network": {"kind": "residual", "width": 64, "blocks": 8, "base_blocks": 8, "mean_subtraction": "after"},
    "data": {"kind": "teacher", "dimension": 32, "samples": 1536},
    "training": {"steps": 101, "batch": 64, "learning_rate": 0.01},
    "transfer": {
        "rates": {"from": 1e-3, "to": 0.1, "count": 17},
        "axes": {"network.blocks": DEPTHS},
        "loss": "train",
        "seeds": 3,
    },
}


def _products() -> float:
    """Floating-point operations of the blocks' matrix products: one forward and two backward, 255 networks."""
    network, training = TABLES["network"], TABLES["training"]
    return 51 * 100 * sum(DEPTHS) * 3 * 2 * training["batch"] * network["width"] ** 2


def main() -> None:
    study = ResidualStudy(**TABLES)
    text = "".join(
        f"[{table}]\n" + "".join(f"{key} = {value!r}\n" for key, value in keys.items())
        for table, keys in TABLES.items()
        if table != "transfer"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.toml"
        path.write_text(text)
        sweep = seconds(lambda: run_sweep(study, Path(folder) / "results", workers=2))
        compiled = compiling = commands = 0.0
        for blocks in DEPTHS:
            problem = study.problem.with_values({"network.blocks": blocks})

            def one(problem=problem) -> None:
                list(train_networks([(problem, 0)], at=[100], parts=["train"]))

            first = seconds(one)
            again = min(seconds(one) for _ in range(3))
            compiled += 51 * again
            compiling += first + 50 * again
            path.write_text(text.replace("blocks = 8\n", f"blocks = {blocks}\n", 1))
            command = [sys.executable, "-m", "lazyrich.cli", "train", str(path), "--seeds", "1", "--quiet"]
            commands += 51 * seconds(lambda command=command: subprocess.run(command, check=True, capture_output=True))
    print(f"lazyrich {lazyrich.__version__}")
    print(f"sweep on two worker processes, start and compilation included: {sweep:.3g} s")
    print(f"the same one after another in one process, each depth compiled once / sweep: {compiling / sweep:.3g}")
    print(f"the same without the compilations / sweep: {compiled / sweep:.3g}")
    print(f"arithmetic of the matrices in the latter: {_products() / compiled / 1e9:.3g} GFLOP/s")
    print(f"the same by 255 commands / sweep: {commands / sweep:.3g}")


if __name__ == "__main__":
    main()
