"""lazyrich tells, before any training, how a deep network's training will go from random initialisation.

The public names load their modules when first used, so that ``import lazyrich`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyrich.averages import average_loss, variance_parts
    from lazyrich.comparison import Comparison, compare, load_comparisons
    from lazyrich.errors import LazyrichError
    from lazyrich.mixed_dynamics import Cost, two_layer
    from lazyrich.problem import (
        DatasetData,
        Diagram,
        GaussianData,
        LabelledData,
        LayerValues,
        Matrix,
        MatrixProblem,
        MatrixStudy,
        MatrixTraining,
        Network,
        PowerLawData,
        Problem,
        ResidualNetwork,
        ResidualProblem,
        ResidualStudy,
        ResidualTraining,
        SpectrumData,
        Study,
        Target,
        TeacherData,
        Training,
        TwoLayerNetwork,
        dataset,
        load_problem,
        load_study,
    )
    from lazyrich.simulation import train, train_averages
    from lazyrich.theory import predict, predict_averages
    from lazyrich.theory.deep_linear.compute import ComputeTrade, compute_trade
    from lazyrich.theory.deep_linear.exponent import Exponent, fit_exponent
    from lazyrich.trajectory import Trajectory, load
    from lazyrich.transfer.diagram import PhaseDiagram, phase_diagram

_HOMES = {
    "averages": ("average_loss", "variance_parts"),
    "comparison": ("Comparison", "compare", "load_comparisons"),
    "errors": ("LazyrichError",),
    "problem": (
        "DatasetData",
        "Diagram",
        "GaussianData",
        "LabelledData",
        "LayerValues",
        "Matrix",
        "MatrixProblem",
        "MatrixStudy",
        "MatrixTraining",
        "Network",
        "PowerLawData",
        "Problem",
        "ResidualNetwork",
        "ResidualProblem",
        "ResidualStudy",
        "ResidualTraining",
        "SpectrumData",
        "Study",
        "Target",
        "TeacherData",
        "Training",
        "TwoLayerNetwork",
        "dataset",
        "load_problem",
        "load_study",
    ),
    "simulation": ("train", "train_averages"),
    "theory": ("predict", "predict_averages"),
    "theory.deep_linear.compute": ("ComputeTrade", "compute_trade"),
    "theory.deep_linear.exponent": ("Exponent", "fit_exponent"),
    "mixed_dynamics": ("Cost", "two_layer"),
    "trajectory": ("Trajectory", "load"),
    "transfer.diagram": ("PhaseDiagram", "phase_diagram"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "ComputeTrade",
    "Cost",
    "DatasetData",
    "Diagram",
    "Exponent",
    "GaussianData",
    "LabelledData",
    "LayerValues",
    "LazyrichError",
    "Matrix",
    "MatrixProblem",
    "MatrixStudy",
    "MatrixTraining",
    "Network",
    "PhaseDiagram",
    "PowerLawData",
    "Problem",
    "ResidualNetwork",
    "ResidualProblem",
    "ResidualStudy",
    "ResidualTraining",
    "SpectrumData",
    "Study",
    "Target",
    "TeacherData",
    "Training",
    "Trajectory",
    "TwoLayerNetwork",
    "average_loss",
    "compare",
    "compute_trade",
    "dataset",
    "fit_exponent",
    "load",
    "load_comparisons",
    "load_problem",
    "load_study",
    "phase_diagram",
    "predict",
    "predict_averages",
    "train",
    "train_averages",
    "two_layer",
    "variance_parts",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"lazyrich.{_HOME[name]}"), name)
    raise AttributeError(f"module 'lazyrich' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
