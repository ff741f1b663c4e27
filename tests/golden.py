"""Reference values of an independent implementation, as problems of this project."""

from __future__ import annotations

import json
from pathlib import Path

from lazyrich import Problem

CASES = json.loads((Path(__file__).parent / "data" / "deep_linear_dmft.json").read_text())["cases"]


def _layers(values):
    table = {"input": values[0], "output": values[-1]}
    return table | {"block": values[1]} if len(values) > 2 else table


def golden_problem(case):
    spectrum = case["spectrum"]
    dimension = spectrum.get("D", 1000)
    data = {"kind": "gaussian"}
    if spectrum["kind"] == "power":
        data = {"kind": "power-law", "capacity": spectrum["a"], "source": spectrum["b"]}
    training = {
        "mode": "full-batch" if case["mode"] == "batch" else case["mode"],
        "steps": case["steps"],
        "learning_rate": _layers(case["eta0_per_layer"]),
        "momentum": case["momentum"][0],
        "weight_decay": _layers(case["weight_decay"]),
        "richness": case["kappa"],
    }
    if case["alpha"]:
        data["samples"] = round(case["alpha"] * dimension)
    if case["alpha_B"]:
        training["batch"] = round(case["alpha_B"] * dimension)
    network = {
        "width": round(case["nu"] * dimension),
        "blocks": case["blocks"],
        "skip": case["skip"],
        "branch": case["branch"],
        "init_std": _layers(case["init_std"]),
    }
    return Problem(
        network=network,
        data=data | {"dimension": dimension, "label_noise": case["label_noise"]},
        training=training,
    )
