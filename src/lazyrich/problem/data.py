"""The ``[data]`` table: four kinds of data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from lazyrich.problem._model import Model, invalid
from lazyrich.problem.network import Count, Finite, NonNegative, kind_of_value, listed

NonEmpty = Annotated[list[Finite], BeforeValidator(listed), Field(min_length=1)]
# A power law beyond this is one mode, and its powers of large mode numbers overflow.
_STEEPEST = 10


def _target_kind(value: Any) -> str:
    return kind_of_value(listed(value)[0]) if kind_of_value(value) == "list" and len(value) else "number"


class _RandomData(Model):
    """What the synthetic kinds share.

    Attributes
    ----------
    samples : int
        P, the number of training samples; in full-batch mode only.
    label_noise : float
        Standard deviation of the noise added to the training targets.
    """

    samples: Count | None = None
    label_noise: NonNegative = 0.0


class _OrthogonalTargets(_RandomData):
    """Synthetic kinds whose several outputs are orthogonal.

    Attributes
    ----------
    dimension : int
        D, the number of inputs.
    outputs : int
        C, the number of outputs.
    """

    dimension: Count
    outputs: Count = 1

    @model_validator(mode="after")
    def _room_for_outputs(self) -> _OrthogonalTargets:
        if self.outputs > self.dimension:
            raise invalid(
                f"{self.outputs} orthogonal outputs do not fit into {self.dimension} dimensions",
                "give at most one output per dimension",
                "outputs",
            )
        return self


class GaussianData(_OrthogonalTargets):
    """Isotropic Gaussian inputs of `dimension` D; `outputs` orthogonal linear targets with ``|beta*|^2 = D``."""

    kind: Literal["gaussian"] = "gaussian"


class PowerLawData(_OrthogonalTargets):
    """Gaussian inputs with eigenvalues ``k^-capacity`` and target power ``(beta*_k)^2 ~ k^-source``.

    Both are scaled so that the means over k of the eigenvalue and of eigenvalue times target power are 1.
    """

    kind: Literal["power-law"] = "power-law"
    capacity: Annotated[NonNegative, Field(le=_STEEPEST)]
    source: Annotated[Finite, Field(ge=-_STEEPEST, le=_STEEPEST)]


class SpectrumData(_RandomData):
    """Gaussian inputs with given covariance `eigenvalues` and `target` coefficients beta*_k in that basis.

    `target` is one list with an entry per eigenvalue, or one such list per output.
    """

    kind: Literal["spectrum"] = "spectrum"
    eigenvalues: Annotated[list[NonNegative], BeforeValidator(listed), Field(min_length=1)]
    target: Annotated[
        Annotated[NonEmpty, Tag("number")] | Annotated[Annotated[list[NonEmpty], BeforeValidator(listed)], Tag("list")],
        Discriminator(_target_kind),
    ]

    @model_validator(mode="after")
    def _lengths(self) -> SpectrumData:
        for target in self.targets:
            if len(target) != len(self.eigenvalues):
                raise invalid(
                    f"has {len(target)} entries for {len(self.eigenvalues)} eigenvalues",
                    "give one entry per eigenvalue",
                    "target",
                )
        if max(self.eigenvalues) == 0:
            raise invalid("all are zero", "give at least one positive eigenvalue", "eigenvalues")
        return self

    @property
    def targets(self) -> list[list[float]]:
        """The target coefficients, one list per output."""
        return self.target if isinstance(self.target[0], list) else [self.target]  # pyright: ignore[reportReturnType]

    @property
    def dimension(self) -> int:
        """D, the number of eigenvalues."""
        return len(self.eigenvalues)

    @property
    def outputs(self) -> int:
        """C, the number of target lists."""
        return len(self.targets)


class DatasetData(Model):
    """A real data set: built in (`name`) or a file (`path`: CSV, NPZ or Parquet).

    Attributes
    ----------
    name : str
        ``"digits"`` (1797 images, 64 pixels) or ``"mnist"`` (5000 images, 784 pixels).
    path : str
        A table with one row per sample; in a problem file, relative to that file.
    target : str or list of str
        The target column or columns of a file. For built-in data: ``"label"``, the default.
    classes : list
        Values of the target column that become one-hot outputs, in this order; the other samples belong to none.
    scaling : str
        ``"global"``: every column is centred and one common factor makes the mean of ``|x|^2`` equal to D;
        ``"column"``: every column is centred and divided by its own standard deviation; ``"none"``: as it is.
        Except with ``"none"`` targets are standardised; reports undo it.
    test_fraction : float, optional
        This part of the samples, drawn once and always the same, is held out: it is neither trained on nor looked at
        to centre and scale, and has the test loss. Default: none is.
    """

    kind: Literal["dataset"] = "dataset"
    name: Literal["digits", "mnist"] | None = None
    path: Annotated[str, Field(min_length=1)] | None = None
    target: str | list[str] | None = None
    classes: Annotated[list[int | float | str], Field(min_length=1)] | None = None
    scaling: Literal["global", "column", "none"] = "global"
    test_fraction: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = None

    @property
    def held_out(self) -> float | None:
        """The share that reading the data holds out."""
        return self.test_fraction

    @model_validator(mode="after")
    def _consistent(self) -> DatasetData:
        if (self.name is None) == (self.path is None):
            raise invalid("a data set needs either name or path", "give exactly one of them")
        if self.path is not None and not self.target:
            raise invalid("missing, and a data file needs it", "name the target column, target = '...'", "target")
        if self.name is not None and self.target not in (None, "label"):
            raise invalid(f"built-in data has no column {self.target!r}", "remove it, or set it to 'label'", "target")
        if self.classes is not None:
            if isinstance(self.target, list) and len(self.target) > 1:
                raise invalid("need a single target column", "give one target, or remove classes", "classes")
            if len(set(self.classes)) < len(self.classes):
                raise invalid("a class is listed twice", "list every class once", "classes")
        return self


def _data_kind(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


Data = Annotated[
    Annotated[GaussianData, Tag("gaussian")]
    | Annotated[PowerLawData, Tag("power-law")]
    | Annotated[SpectrumData, Tag("spectrum")]
    | Annotated[DatasetData, Tag("dataset")],
    Discriminator(_data_kind),
]


def dataset(
    source: str,
    *,
    target: str | list[str] | None = None,
    classes: list[int | float | str] | None = None,
    scaling: Literal["global", "column", "none"] = "global",
    test_fraction: float | None = None,
) -> DatasetData:
    """A built-in data set by name (``"digits"``, ``"mnist"``), or a CSV, NPZ or Parquet file by path.

    See :class:`DatasetData` for the options.
    """
    options: dict[str, Any] = {
        "target": target,
        "classes": classes,
        "scaling": scaling,
        "test_fraction": test_fraction,
    }
    return DatasetData(**{"name" if source in ("digits", "mnist") else "path": source}, **options)
