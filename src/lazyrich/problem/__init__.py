"""What is asked: network, data, training, and the files that hold them."""

from lazyrich.problem.data import Data, DatasetData, GaussianData, PowerLawData, SpectrumData, dataset
from lazyrich.problem.diagram import Diagram, MatrixStudy
from lazyrich.problem.files import Compare, ResidualStudy, Study, load_problem, load_study
from lazyrich.problem.matrix import Matrix, MatrixProblem, MatrixTraining, Target, TwoLayerNetwork
from lazyrich.problem.network import LayerValues, Network
from lazyrich.problem.problem import Problem, output_scale
from lazyrich.problem.residual import LabelledData, ResidualNetwork, ResidualProblem, ResidualTraining, TeacherData
from lazyrich.problem.training import Training

__all__ = [
    "Compare",
    "Data",
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
    "output_scale",
]
