"""Speed as ratios within one run: ``python -m benchmarks.run [--json FILE]`` (``make bench``).

Machines differ and are noisy, so every figure is a ratio of two times taken in turn, or an exponent; the median of
several rounds is given. docs/benchmarks.md says what each one means.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

import lazyrich
from lazyrich import (
    GaussianData,
    Matrix,
    MatrixProblem,
    MatrixTraining,
    Network,
    Problem,
    Target,
    Training,
    TwoLayerNetwork,
    load_study,
)
from lazyrich.mixed_dynamics.costs import Factorization
from lazyrich.mixed_dynamics.descent import factor_descent
from lazyrich.mixed_dynamics.start import tied_factors
from lazyrich.problem.spectrum import input_dimension
from lazyrich.provenance import provenance
from lazyrich.simulation import train
from lazyrich.theory.deep_linear import products
from lazyrich.theory.deep_linear.limit import Limit, take_limit
from lazyrich.theory.deep_linear.quadrature import data_measure
from lazyrich.theory.deep_linear.solver import Solution, solve
from lazyrich.theory.deep_linear.strides import Strides, initial_edge, stride_ends
from lazyrich.transfer.engine import run_cells
from lazyrich.transfer.store import ResultStore
from lazyrich.transfer.sweep import run_sweep
from tests.fixed_point import first_guess, sweep


def problem(steps: int, blocks: int, skip: float = 0.0, outputs: int = 1, size: int = 1000) -> Problem:
    """Isotropic data, full batch, width = dimension, 1.5 samples per dimension, well below the edge of stability."""
    return Problem(
        network=Network(width=size, blocks=blocks, skip=skip, **({"beta0": 1.0} if skip else {})),
        data=GaussianData(dimension=size, samples=3 * size // 2, label_noise=0.3, outputs=outputs),
        training=Training(steps=steps, learning_rate=0.05 / (blocks + 2)),
    )


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Time of one call."""
    start = clock()
    work()
    return clock() - start


def ratio(
    slow: Callable[[], object],
    fast: Callable[[], object],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Median over rounds of the ratio of two times taken in turn, and the median time of the second."""
    fast()
    pairs = [(seconds(slow, clock), seconds(fast, clock)) for _ in range(rounds)]
    return statistics.median(a / b for a, b in pairs), statistics.median(b for _, b in pairs)


def products_of(solution, steps: int) -> Callable[[], None]:
    """The solver's row-matrix products alone: as many, one by one, with the same sizes and the same matrices."""
    used = []
    for level in solution.cascade.levels:
        used += [*level.stack, level.dg_da.T, level.dh_da.T, level.dg_db.T, level.dh_db.T]
    data = solution.data
    used += [data.data_response, data.source, data.kernel.T, solution.cascade.levels[0].cov_gg, data.spread]
    used += [data.weight_error, data.learned, data.moment_one, data.data_response.T, data.data_response.T]
    used += [data.source, data.moment_one.T]
    for node in data.responses:
        used += [node, node.T]
    row = np.ones((1, steps))

    def work() -> None:
        for step in range(1, steps):
            part = row[:, :step]
            for matrix in used:
                part @ matrix[:step, :step]

    return work


def against_fixed_point() -> dict:
    """T = 200, three hidden levels: 29 undamped sweeps of the fixed-point iteration against one pass."""
    limit = take_limit(problem(200, 2))

    def iterate() -> None:
        guess = first_guess(limit)
        for _ in range(29):
            guess = sweep(limit, guess)

    found = {}
    for threads in (1, os.cpu_count()):
        with threadpool_limits(threads), np.errstate(all="ignore"):
            value, own = ratio(iterate, lambda: solve(limit), rounds=5)
        found |= {f"fixed point / one pass, {threads} threads": value, f"one pass, {threads} threads, ms": 1e3 * own}
    return found


def against_products() -> dict:
    """Two blocks: one pass against its own row-matrix products, all of them plain."""
    found = {}
    for steps in (100, 200, 400):
        limit = take_limit(problem(steps, 2))
        with mock.patch.object(products, "SHORT", steps):
            work = products_of(solve(limit), steps)
            found[f"one pass / products, T = {steps}"] = ratio(partial(solve, limit), work, rounds=5)[0]
    return found


def against_plain_products() -> dict:
    """Two blocks: the solver with plain products only against the solver as it is, and how far their losses differ."""
    found = {}
    for steps in (300, 500, 1000):
        limit = take_limit(problem(steps, 2))

        def plain(limit=limit, steps=steps) -> Solution:
            with mock.patch.object(products, "SHORT", steps):
                return solve(limit)

        with threadpool_limits(1):
            found[f"plain / as it is, T = {steps}"] = ratio(plain, partial(solve, limit), 3, time.process_time)[0]
        losses = [np.diag(solution.data.weight_error) for solution in (plain(), solve(limit))]
        found[f"largest relative difference, T = {steps}"] = float(np.max(np.abs(losses[1] / losses[0] - 1)))
    return found


def against_every_step() -> dict:
    """Two blocks: every step of 1000 against strides to 1% and 0.1%, how far losses differ, nodes; nodes of 10,000."""
    every = problem(1000, 2)
    exact, found = lazyrich.predict(every), {}
    for tolerance in (0.01, 0.001):
        asked = every.with_values({"training.tolerance": tolerance})
        value, own = ratio(partial(lazyrich.predict, every), partial(lazyrich.predict, asked), rounds=3)
        strides = lazyrich.predict(asked)
        longer = lazyrich.predict(asked.with_values({"training.steps": 10_000}))
        errors = [
            np.abs(strides.data[name].values / exact.data[name].values[strides.steps] - 1).max()
            for name in ("train_loss", "test_loss")
        ]
        found |= {
            f"every step / to {tolerance}": value,
            f"to {tolerance}, ms": 1e3 * own,
            f"to {tolerance}, largest error": float(max(errors)),
            f"to {tolerance}, nodes": strides.statistics["nodes"],
            f"to {tolerance}, nodes for 10,000 steps": longer.statistics["nodes"],
        }
    return found


def peak_memory() -> dict:
    """T = 1000, three hidden levels: the most memory that predict holds at once, in T x T matrices per level."""
    lazyrich.predict(problem(20, 2))  # so that nothing is imported later
    tracemalloc.start()
    lazyrich.predict(problem(1000, 2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"matrices per level": peak / (3 * 8 * 1000**2)}


def against_depth() -> dict:
    """T = 100: exponent of the time in the number of blocks, 8 to 64, plain and residual."""
    found = {}
    for name, skip in (("plain", 0.0), ("residual", 1.0)):
        depths = [8, 16, 32, 64]
        limits = [take_limit(problem(100, blocks, skip)) for blocks in depths]
        times = [min(seconds(partial(solve, limit)) for _ in range(3)) for limit in limits]
        found[f"exponent in depth, {name}"] = float(np.polyfit(np.log(depths), np.log(times), 1)[0])
    return found


def short_prediction() -> dict:
    """T = 100, one block: the whole of predict, once warm."""
    asked = problem(100, 1)
    lazyrich.predict(asked)
    return {
        "predict, T = 100, one block, ms": 1e3
        * statistics.median(seconds(lambda: lazyrich.predict(asked)) for _ in range(9))
    }


def against_outputs() -> dict:
    """Two blocks: ten outputs in units of one, for equal and orthogonal targets and for the digits' classes."""
    one, ten = problem(60, 2), problem(60, 2, outputs=10)
    found = {
        "orthogonal targets, T = 60": ratio(lambda: lazyrich.predict(ten), lambda: lazyrich.predict(one), rounds=5)[0]
    }
    digits = load_study(Path(__file__).parent.parent / "studies" / "digits.toml").problem
    for steps, rounds in ((60, 3), (120, 1)):
        classes = take_limit(digits.with_values({"training.steps": steps}))
        zero = take_limit(digits.with_values({"training.steps": steps}), measure=classes.data.first_output())
        with threadpool_limits(1):
            value = ratio(partial(solve, classes), partial(solve, zero), rounds, time.process_time)[0]
        found[f"digits, T = {steps}, one BLAS thread"] = value
    for steps in (120, 200):  # in the strides of a prediction to 1%
        asked = digits.with_values({"training.steps": steps})
        measure = data_measure(asked.data)
        edge = 1.15 * initial_edge(asked, measure, input_dimension(asked.data))
        strides = [Strides(stride_ends(steps, 0.7), edge, parts, np.ones(steps)) for parts in (1, 2)]
        classes = [take_limit(asked, measure=measure, strides=each) for each in strides]
        zero = [take_limit(asked, measure=measure.first_output(), strides=each) for each in strides]
        with threadpool_limits(1):
            value = ratio(partial(solve_all, classes), partial(solve_all, zero), 5, time.process_time)[0]
        found[f"digits in strides, T = {steps}, one BLAS thread"] = value
    return found


def solve_all(limits: list[Limit]) -> None:
    for limit in limits:
        solve(limit)


def against_modes() -> dict:
    """T = 100, one block: MNIST's 784 inputs against 16 of the same kind of spectrum."""

    def power_law(dimension: int) -> Problem:
        data = lazyrich.PowerLawData(dimension=dimension, samples=3 * dimension // 2, capacity=0.8, source=0.3)
        return Problem(
            network=Network(width=dimension, blocks=1), data=data, training=Training(steps=100, learning_rate=0.01)
        )

    many, few = power_law(784), power_law(16)
    return {
        "784 inputs / 16": ratio(lambda: lazyrich.predict(many), lambda: lazyrich.predict(few), rounds=5)[0],
        "10^8 inputs / 16": ratio(lambda: lazyrich.predict(power_law(10**8)), lambda: lazyrich.predict(few), rounds=5)[
            0
        ],
    }


@dataclass(frozen=True)
class Trivial:
    """A cell that does nothing."""

    number: int

    def key(self) -> str:
        return f"{self.number:032d}"

    def execute(self) -> dict[str, np.ndarray]:
        return {"number": np.asarray(self.number)}


def dispatch() -> dict:
    """10,000 cells that do nothing on two worker processes: what the engine adds to each, files and start included."""
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStore(Path(folder) / "results", "trivial")
        taken = seconds(lambda: run_cells([Trivial(number) for number in range(10_000)], store, workers=2))
    return {"added per cell, ms": 1e3 * taken / 10_000}


def theory_sweep() -> dict:
    """D = 200, T = 60, 4 widths x 24 rates x 2 parametrizations by theory, on all cores, start included."""
    study = load_study(Path(__file__).parent.parent / "studies" / "d3-checked-by-training.toml")
    study = study.model_copy(update={"transfer": study.transfer.model_copy(update={"refine": 0})})
    with tempfile.TemporaryDirectory() as folder:
        taken = seconds(lambda: run_sweep(study, Path(folder) / "results", by="theory"))
    return {"192 trainings by theory, s": taken}


def against_training() -> dict:
    """D = N = P = 1000, one block, 200 steps: 32 trained networks (4 are timed, compiled before) / predict.

    And trained networks / predict for the same error: that of predict, measured at a size of 32 and proportional to one
    over the size, against the standard error of a mean over networks.
    """

    def asked(size: int) -> Problem:
        return problem(200, 1).with_values({"network.width": size, "data.dimension": size, "data.samples": size})

    large, small = asked(1000), asked(32)
    rough = large.with_values({"training.tolerance": 0.01})
    train(large.with_values({"training.steps": 16}), seeds=4)
    value, own = ratio(lambda: train(large, seeds=4), lambda: lazyrich.predict(large), rounds=3)
    rough_value, rough_own = ratio(lambda: train(large, seeds=4), lambda: lazyrich.predict(rough), rounds=5)
    quick, every = lazyrich.predict(rough), lazyrich.predict(large)
    trained = train(large, seeds=16).data
    spread = float(np.median(trained["train_loss_sem"] / trained["train_loss"])) * math.sqrt(16 / 32)
    trained, predicted = train(small, seeds=4000).data, lazyrich.predict(small).train_loss
    error = float(np.median(np.abs(trained["train_loss"] / predicted - 1))) * 32 / 1000
    return {
        "32 networks / predict": 8 * value,
        "predict, ms": 1e3 * own,
        "32 networks / predict to 1%": 8 * rough_value,
        "predict to 1%, ms": 1e3 * rough_own,
        "predict to 1%, largest error": float(np.max(np.abs(quick.train_loss / every.train_loss[quick.steps] - 1))),
        "standard error of 32 networks": spread,
        "error of predict": error,
        "networks / predict for the same error": 8 * value * (spread / error) ** 2,
    }


def against_decompositions() -> dict:
    """A step of the law by tied factors against its two singular value decompositions, d = 200 and 500."""
    found = {}
    for size in (200, 500):
        target = np.random.default_rng(0).standard_normal((size, size))
        states = factor_descent(tied_factors(np.zeros((size, size)), 0.1), Factorization(target), 1e-4, 0.0)

        def step(states=states) -> None:
            for _ in range(10):
                next(states)

        def decompose(target=target) -> None:
            np.linalg.svd(target)
            np.linalg.svd(target)

        value, own = ratio(decompose, step, rounds=7)
        found |= {f"two SVDs / a step, d = {size}": 10 * value, f"a step, d = {size}, ms": 1e2 * own}
    return found


def against_width() -> dict:
    """A network of width 10^6 and one of 10^12 against one of width d_in + d_out = 400, d = 200, 200 steps."""

    def run(width: int) -> Callable[[], object]:
        asked = MatrixProblem(
            matrix=Matrix(shape=[200, 200], target=Target(rank=5)),
            network=TwoLayerNetwork(width=width, threshold=0.1),
            training=MatrixTraining(steps=200, record=10),
        )
        return lambda: lazyrich.two_layer(asked)

    with threadpool_limits(1):
        return {f"width {width:.0e} / 400": ratio(run(width), run(400), rounds=7)[0] for width in (10**6, 10**12)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    report = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "versions": provenance()}
    print(f"{report['machine']}, {report['versions']}")
    for study in (
        against_fixed_point,
        against_products,
        against_plain_products,
        against_every_step,
        peak_memory,
        against_depth,
        short_prediction,
        against_outputs,
        against_modes,
        dispatch,
        theory_sweep,
        against_training,
        against_decompositions,
        against_width,
    ):
        print(f"\n{study.__doc__}")
        report[study.__name__] = study()
        for name, value in report[study.__name__].items():
            print(f"    {name:40s} {value:10.3g}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
