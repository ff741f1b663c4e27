"""What a sweep says: the best rate of every point, how it moves along every axis, and what carrying it costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem.files import point_label
from lazyrich.transfer.optimum import Optimum, find_optimum
from lazyrich.transfer.shift import Regret, Shift, regret, shift_octaves
from lazyrich.transfer.sweep import Grid, Method, Point, Sweep
from lazyrich.transfer.trend import Drift, Extrapolation, drift, extrapolate


@dataclass(frozen=True)
class Best:
    """The best rate at one point, by one method, at one step."""

    axes: dict[str, Any]
    by: Method
    at: int
    optimum: Optimum
    rates: np.ndarray
    losses: np.ndarray  # (rates, networks)
    unstable: float | None  # the smallest rate that diverged
    measured: str = "loss"  # what the losses are, in words; they may be errors
    least: float = 0.0  # losses up to this are equally good


@dataclass(frozen=True)
class Move:
    """How the best rate moves from the first value of an axis to another, the other axes fixed."""

    axis: str
    fixed: dict[str, Any]
    by: Method
    at: int
    start: Any
    end: Any
    shift: Shift
    regret: Regret


@dataclass(frozen=True)
class Trend:
    """How the best rate moves along a numeric axis as a whole, and where it will be at a size not run.

    At that size `prediction` is what the sizes that were run say, and `theory` what the theory says of it directly.
    """

    axis: str
    fixed: dict[str, Any]
    by: Method
    at: int
    sizes: list[float]
    optima: list[Optimum]
    drift: Drift
    target: float | None
    prediction: Extrapolation | None
    theory: Optimum | None


@dataclass(frozen=True)
class Analysis:
    """All that a transfer study answers.

    Attributes
    ----------
    best : list of Best
    moves : list of Move
    trends : list of Trend
    """

    best: list[Best]
    moves: list[Move]
    trends: list[Trend]

    def to_json(self) -> dict[str, Any]:
        """Plain values, with None where there is no number."""
        from lazyrich.trajectory import plain

        def interval(values: tuple[float, float]) -> list[float | None]:
            return [plain(float(value)) for value in values]

        optima = [
            {
                "axes": best.axes,
                "by": best.by,
                "at": best.at,
                "best_rate": plain(best.optimum.best_rate),
                "interval": interval(best.optimum.interval),
                "loss": plain(best.optimum.loss),
                "flag": best.optimum.flag,
                "largest_stable_rate": plain(best.optimum.largest_stable_rate),
                "smallest_unstable_rate": best.unstable,
            }
            for best in self.best
        ]
        shifts = [
            {
                "axis": move.axis,
                "axes": move.fixed,
                "by": move.by,
                "at": move.at,
                "from": move.start,
                "to": move.end,
                "octaves": plain(move.shift.octaves),
                "interval": interval(move.shift.interval),
                "regret": plain(move.regret.nats),
                "regret_interval": interval(move.regret.interval),
                "flag": move.shift.flag,
            }
            for move in self.moves
        ]
        trends = [
            {
                "axis": trend.axis,
                "axes": trend.fixed,
                "by": trend.by,
                "at": trend.at,
                "octaves_per_doubling": plain(trend.drift.octaves_per_doubling),
                "interval": interval(trend.drift.interval),
                "verdict": trend.drift.verdict,
                "target": trend.target,
                "predicted_rate": plain(trend.prediction.rate) if trend.prediction else None,
                "predicted_interval": interval(trend.prediction.interval) if trend.prediction else None,
                "theory_rate": plain(trend.theory.best_rate) if trend.theory else None,
            }
            for trend in self.trends
        ]
        return {"optima": optima, "shift": shifts, "trends": trends}


def named(values: dict[str, Any]) -> str:
    """The label of a point; ``base`` without axes."""
    return point_label(values) or "base"


def analyse(sweep: Sweep) -> Analysis:
    """Find the optima of a sweep and how they move.

    Raises
    ------
    LazyrichError
        When every training diverged.
    """
    best = [
        _best(sweep.points[position], by, step, grid, index, sweep.measured)
        for (position, by), grid in sorted(sweep.grids.items())
        if position < len(sweep.points)
        for index, step in enumerate(sweep.points[position].at)
    ]
    if all("diverged" in each.optimum.flags for each in best):
        raise LazyrichError("transfer.rates", "every training diverged", "give lower rates")
    assert sweep.study.transfer is not None
    axes = sweep.study.transfer.axes
    moves, trends = [], []
    for axis, values in axes.items():
        for fixed, members in _lines(best, axis):
            if len(members) < 2:
                continue
            regrets = _carried(members)
            moves += [_move(axis, fixed, members[0], *other) for other in zip(members[1:], regrets, strict=True)]
            if _numeric(values):
                sizes = [member.axes[axis] for member in members]
                trends.append(_trend(sweep, axis, fixed, members, sizes, regrets))
    for members in _horizons(best):
        if len(members) > 1:
            sizes = [member.at + 1.0 for member in members]
            trends.append(_trend(sweep, "step", members[0].axes, members, sizes, _carried(members)))
    return Analysis(best, moves, trends)


def _best(point: Point, by: Method, step: int, grid: Grid, index: int, measured: str) -> Best:
    losses = grid.losses[:, index]
    unstable = grid.rates[(grid.diverged >= 0).any(axis=1)]
    return Best(
        point.values,
        by,
        step,
        find_optimum(grid.rates, losses, least=point.least),
        grid.rates,
        losses,
        float(unstable.min()) if len(unstable) else None,
        measured,
        point.least,
    )


def _lines(best: list[Best], axis: str) -> Iterator[tuple[dict[str, Any], list[Best]]]:
    """Groups that differ in one axis only, in the order of that axis."""

    def others(each: Best) -> str:
        fixed = {name: value for name, value in each.axes.items() if name != axis}
        # with training.steps as the axis, the last step moves with it
        return repr((fixed, each.by, each.at if axis != "training.steps" else None))

    for _, group in itertools.groupby(sorted(best, key=others), key=others):
        members = list(group)
        yield {name: value for name, value in members[0].axes.items() if name != axis}, members


def _horizons(best: list[Best]) -> list[list[Best]]:
    """Groups that differ in the step only."""
    groups: dict[str, list[Best]] = {}
    for each in best:
        groups.setdefault(repr((each.axes, each.by)), []).append(each)
    return list(groups.values())


def _numeric(values: list[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < np.inf for v in values)


def _carried(members: list[Best]) -> list[Regret]:
    """What the first one's best rate costs at each of the others."""
    rate = members[0].optimum.best_rate
    return [regret(each.rates, each.losses, rate, each.optimum, least=each.least) for each in members[1:]]


def _move(axis: str, fixed: dict[str, Any], base: Best, other: Best, cost: Regret) -> Move:
    shift = shift_octaves(base.optimum, other.optimum)
    return Move(axis, fixed, other.by, other.at, base.axes[axis], other.axes[axis], shift, cost)


def _trend(
    sweep: Sweep, axis: str, fixed: dict[str, Any], members: list[Best], sizes: list[float], regrets: list[Regret]
) -> Trend:
    assert sweep.study.transfer is not None
    optima = [member.optimum for member in members]
    target = sweep.study.transfer.targets.get(axis)
    prediction = theory = None
    if target is not None:
        prediction = extrapolate(sizes, optima, target, kind="depth" if axis == "network.blocks" else "width")
        if sweep.targets:
            theory = _theory_at(sweep, fixed | {axis: target}, members[-1].at)
    by, at = members[0].by, members[0].at
    return Trend(axis, fixed, by, at, sizes, optima, drift(sizes, optima, regrets), target, prediction, theory)


def _theory_at(sweep: Sweep, values: dict[str, Any], step: int) -> Optimum:
    """The best rate of a target by theory."""
    place = next(index for index, point in enumerate(sweep.targets) if point.values == values)
    grid, point = sweep.grids[len(sweep.points) + place, "theory"], sweep.targets[place]
    index = point.at.index(step) if step in point.at else -1
    return find_optimum(grid.rates, grid.losses[:, index], least=point.least)
