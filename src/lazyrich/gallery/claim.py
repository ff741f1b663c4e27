"""What a claim is, and how measured numbers become a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lazyrich.gallery.work import Work

Verdict = Literal["holds", "holds with conditions", "does not hold", "undecided"]
Results = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """A measured number with its interval.

    Attributes
    ----------
    name : str
    value : float
    low, high : float, optional
        95% interval; both `value` where the number is computed and not sampled.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            if math.isnan(getattr(self, end)):
                object.__setattr__(self, end, self.value)

    def __str__(self) -> str:
        if self.low == self.high == self.value:
            return f"{self.value:.3g}"
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Check:
    """A number that has to be on one side of a threshold.

    Attributes
    ----------
    number : Number
    below, above : float, optional
        The number's whole interval has to be below `below` and above `above`.
    reason : str
        Why the threshold is what it is.
    essential : bool
        Whether the claim falls with it; else it is a condition of the claim.
    """

    number: Number
    below: float = math.inf
    above: float = -math.inf
    reason: str = ""
    essential: bool = True

    @property
    def outcome(self) -> Literal["yes", "no", "undecided"]:
        """Whether it is so; undecided where the threshold lies within the interval, or there is no number."""
        number = self.number
        if math.isnan(number.value):
            return "undecided"
        if number.low > self.above and number.high < self.below:
            return "yes"
        return "no" if number.high <= self.above or number.low >= self.below else "undecided"

    @property
    def threshold(self) -> str:
        """The threshold in words."""
        parts = [f"above {self.above:.3g}"] * math.isfinite(self.above)
        return " and ".join(parts + [f"below {self.below:.3g}"] * math.isfinite(self.below))


@dataclass(frozen=True)
class Judgement:
    """What became of a claim.

    Attributes
    ----------
    verdict : str
        See :func:`decide`.
    sentence : str
        What was measured, in one sentence.
    checks : sequence of Check
    numbers : sequence of Number
        Further numbers that no threshold decides on.
    """

    sentence: str
    checks: Sequence[Check]
    numbers: Sequence[Number] = ()
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", decide(self.checks))


def decide(checks: Sequence[Check]) -> Verdict:
    """The verdict of some checks.

    Returns
    -------
    str
        ``"does not hold"`` if an essential check fails, else ``"undecided"`` if one is undecided, else ``"holds with
        conditions"`` if a condition is not met for certain, else ``"holds"``.
    """
    essential = [check.outcome for check in checks if check.essential]
    if "no" in essential:
        return "does not hold"
    if "undecided" in essential or not essential:
        return "undecided"
    return "holds" if all(check.outcome == "yes" for check in checks) else "holds with conditions"


@dataclass(frozen=True)
class Source:
    """A study that a claim rests on.

    Attributes
    ----------
    name : str
        Its file in ``studies``, with its ending: a problem file, or a script whose work is `works`.
    quick : dict
        Changes for a quick run: ``table.key`` to a value; where both are tables, the new keys are put into the old one.
    works : callable, optional
        From whether the run is quick to the pieces of work.
    """

    name: str
    quick: Mapping[str, Any] = field(default_factory=dict)
    works: Callable[[bool], Sequence[Work]] | None = None


@dataclass(frozen=True)
class Claim:
    """A claim of the literature, its studies, and how their results are judged.

    Attributes
    ----------
    id : str
        ``D``, ``M`` or ``T`` and a number.
    statement : str
    sources : tuple of Source
    judge : callable
        A pure function from results, by the name of their study, to a :class:`Judgement`. What a result is depends on
        the study: an ``Analysis`` of a transfer study, a ``PhaseDiagram``, a list of ``Comparison``, a ``Trajectory``
        of a two-layer network, or a list of dicts of arrays, one for each piece of work.
    draw : callable
        From the same results to a figure.
    """

    id: str
    statement: str
    sources: tuple[Source, ...]
    judge: Callable[[Results], Judgement]
    draw: Callable[[Results], Figure]


def drawn(plot: Callable[[Any], Figure], study: str) -> Callable[[Results], Figure]:
    """What draws a claim whose figure is that of one of its studies."""
    return lambda results: plot(results[study])
