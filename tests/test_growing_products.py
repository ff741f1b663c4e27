"""Products of rows with growing matrices: against plain products, and the solver with them against itself without."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import lazyrich
from lazyrich import GaussianData, Network, PowerLawData, Problem, Training
from lazyrich.theory.deep_linear import products
from lazyrich.theory.deep_linear.checks import residual
from lazyrich.theory.deep_linear.limit import take_limit
from lazyrich.theory.deep_linear.products import GrowingProduct
from lazyrich.theory.deep_linear.solver import required_memory, solve

SIZE = 150


@pytest.fixture
def early(monkeypatch):
    """Spaces of rows from step 40 on, found anew every 12 steps."""
    for name, value in {"SHORT": 40, "_RECENT": 20, "_EVERY": 12, "_STRIDE": 1, "_TOO_MANY": 0.7}.items():
        monkeypatch.setattr(products, name, value)


def smooth_matrices():
    """A covariance, a cross covariance, a response with a diagonal and one without, and smooth rows."""
    time = np.arange(SIZE) / 40
    later, earlier = time[:, None], time
    covariance = np.exp(-((later - earlier) ** 2))
    cross = np.sin(later + 2 * earlier) + (later > earlier) * (later - earlier) * np.cos(later * earlier)
    response = np.tril(np.exp(earlier - later), -1) / 40
    rows = np.tril(np.cos(later * (1 + earlier)) + later)
    return covariance, cross, response + np.eye(SIZE), response, rows


def learn(matrices, mirrors, transposed, rows):
    """Feed rows (n, j, r, n), entry t known up to t; products, the most directions, and whether to the end."""
    size = rows.shape[-1]
    seen = np.zeros_like(matrices)
    turned = None if mirrors is None else np.zeros_like(mirrors)
    product = GrowingProduct(seen, mirrors=turned, transposed=transposed)
    found, directions = [], 0
    for stop in range(1, size + 1):
        seen[:, :stop, :stop] = matrices[:, :stop, :stop]  # what comes later is not known yet
        if turned is not None:
            turned[:, :stop, :stop] = mirrors[:, :stop, :stop]
        part = np.ascontiguousarray(rows[stop - 1, ..., :stop])
        found.append(product(part))
        directions = max(directions, len(product.space.basis))
    return found, directions, product.space.start > 0


def plain(matrices, transposed, rows):
    matrices = matrices.swapaxes(1, 2) if transposed else matrices
    return [rows[t, ..., : t + 1] @ matrices[:, : t + 1, : t + 1] for t in range(rows.shape[-1])]


def largest_error(found, expected):
    return max(np.abs(f - e).max() for f, e in zip(found, expected, strict=True)) / np.abs(expected[-1]).max()


@pytest.mark.parametrize("kind", ["covariances and responses", "transposed", "rows for each", "several rows"])
def test_products_of_smooth_rows(early, kind):
    covariance, cross, answer, response, smooth = smooth_matrices()
    mirrors, transposed, rows = None, False, smooth[:, None, None, :]
    matrices = np.stack([covariance, cross, answer, response])
    if kind == "covariances and responses":
        mirrors = np.stack([covariance, cross.T])
    elif kind == "several rows":
        matrices, mirrors = covariance[None], covariance[None]
        rows = np.stack([smooth, smooth**2, np.tril(np.ones_like(smooth))], axis=1)[:, None]
    else:
        matrices, transposed = np.stack([answer, response]), True
        if kind == "rows for each":
            rows = np.stack([smooth, smooth**2], axis=1)[:, :, None]
    found, directions, to_the_end = learn(matrices, mirrors, transposed, rows)
    # rounding and 1e-13 of a row that may be left out: measured 7e-16 to 1.2e-14
    assert largest_error(found, plain(matrices, transposed, rows)) < 1e-13
    assert to_the_end
    assert directions < 40  # of 130 columns: measured 14 to 22


def test_rows_need_not_be_smooth(early):
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((3, SIZE, SIZE))
    matrices[2] = np.tril(matrices[2])
    mirrors = matrices[:2].swapaxes(1, 2)
    rows = rng.standard_normal((SIZE, 1, 1, SIZE))
    found, directions, to_the_end = learn(matrices, mirrors, False, rows)
    assert largest_error(found, plain(matrices, False, rows)) < 1e-14  # rounding: measured 9e-16
    assert directions > 25  # every row is new: measured 32, of 20 to 32 rows
    assert not to_the_end  # it does not pay


def test_rows_that_grow_without_bound(early):
    # a training that diverges: each row ten times the one before; the digits of the earlier ones are not asked for
    *_, answer, response, smooth = smooth_matrices()
    matrices, rows = (
        np.stack([answer, response]),
        (10.0 ** np.arange(SIZE))[:, None, None, None] * smooth[:, None, None],
    )
    found, directions, _ = learn(matrices, None, True, rows)
    assert directions < 40
    for result, expected in zip(found, plain(matrices, True, rows), strict=True):
        assert np.abs(result - expected).max() < 1e-14 * np.abs(expected).max()  # measured 1e-15


def test_what_is_left_out_is_bounded(early):
    # rows with noise of 1e-9: all of it is multiplied too
    covariance, _, answer, _, smooth = smooth_matrices()
    matrices, mirrors = np.stack([covariance, answer]), covariance[None]
    noise = np.tril(np.random.default_rng(0).standard_normal((SIZE, SIZE)))
    rows = (smooth + 1e-9 * noise)[:, None, None, :]
    found, directions, to_the_end = learn(matrices, mirrors, False, rows)
    assert largest_error(found, plain(matrices, False, rows)) < 1e-14  # measured 1e-15
    assert directions > 25  # measured 32
    assert not to_the_end


def test_nothing_is_found_in_rows_that_are_not_finite(early):
    *_, answer, response, smooth = smooth_matrices()
    rows = smooth[:, None, None, :].copy()
    rows[100:, ..., 3] = np.nan
    rows[120:, ..., 5] = np.inf
    with np.errstate(invalid="ignore"):
        found, *_ = learn(np.stack([answer, response]), None, True, rows)
    assert np.isfinite(found[99]).all()
    assert all(np.isnan(found[step]).any() for step in range(100, SIZE))


def problem(steps, data=None, **changes):
    """Power-law data in full batch, two blocks; a change is a dotted key with "__" for the dot."""
    base = Problem(
        network=Network(width=60, blocks=2),
        data=data or PowerLawData(dimension=100, capacity=0.8, source=0.3, samples=150, label_noise=0.2),
        training=Training(steps=steps, learning_rate=0.02),
    )
    return base.with_values({key.replace("__", "."): value for key, value in changes.items()})


PROBLEMS = {
    "full batch": {},
    "rich": {"training__richness": 3.0, "training__learning_rate": 0.008},
    "online": {"training__mode": "online", "training__batch": 40, "data__samples": None},
    "population": {"training__mode": "population", "data__samples": None},
    "infinite width": {"training__mode": "population", "data__samples": None, "network__width": float("inf")},
    "momentum and decay": {
        "training__momentum": 0.8,
        "training__learning_rate": 0.004,
        "training__weight_decay": {"input": 0.3, "block": 0.1, "output": 0.0},
    },
    "rates at random": {"training__learning_rate": np.random.default_rng(0).uniform(0, 0.03, 140).tolist()},
    "residual": {"network__skip": 1.0, "network__branch": 0.5, "training__learning_rate": 0.01},
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_solution_is_the_one_of_plain_products(early, monkeypatch, name):
    limit = take_limit(problem(140, **PROBLEMS[name]))
    found = solve(limit)
    monkeypatch.setattr(products, "SHORT", 10**6)
    expected = solve(limit)
    pairs = [(found.data.weight_error, expected.data.weight_error)]
    pairs.append((found.data.data_gradient, expected.data.data_gradient))
    if found.data.full_batch:
        pairs.append((found.data.sample_error, expected.data.sample_error))
    for mine, plain_level in zip(found.cascade.levels, expected.cascade.levels, strict=True):
        pairs += [(getattr(mine, key), getattr(plain_level, key)) for key in ("cov_hh", "cov_gg", "dh_db", "dg_da")]
    for mine, other in pairs:
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-12 * np.abs(other).max())  # measured 2e-14 to 7e-14
    losses = [np.diag(solution.data.weight_error) for solution in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-11)  # measured 1e-14 to 7e-13
    assert residual(found) < 1e-10  # measured 6e-15 to 2e-12; plain 4e-15 to 1e-13
    assert np.any(losses[0] != losses[1])  # the ways were different ones


def test_losses_that_nearly_vanish():
    # what is left out shows in losses of 1e-13 of the initial one, and these are reported as rounding error
    clean = Problem(
        network=Network(width=200, blocks=0),
        data=GaussianData(dimension=100, samples=400),
        training=Training(steps=products.SHORT + 16, learning_rate=0.2),
    )
    predicted = lazyrich.predict(clean)
    assert predicted.test_loss.min() >= 1e-13 * predicted.test_loss[0]
    assert predicted.statistics["steps_at_rounding_floor"] > 0


@pytest.mark.parametrize("transposed", [False, True])
def test_several_outputs_skip_the_zeros(monkeypatch, transposed):
    monkeypatch.setattr(products, "_BLOCK", 20)
    covariance, _, answer, response, _ = smooth_matrices()
    matrices = np.stack([answer, response]) if transposed else np.stack([covariance, answer, response])
    rng = np.random.default_rng(0)
    for same in (1, len(matrices)) if transposed else (1,):
        mirrors = None if transposed else covariance[None]
        product = GrowingProduct(matrices, mirrors=mirrors, transposed=transposed, several=True)
        for stop in (10, 39, 41, 100, 149, 150):
            rows = rng.standard_normal((same, 3, stop))
            part = matrices[:, :stop, :stop]
            # rounding: measured 2e-16 of the largest entry
            expected = rows @ (part.swapaxes(1, 2) if transposed else part)
            np.testing.assert_allclose(product(rows), expected, rtol=0, atol=1e-14 * np.abs(expected).max())


def test_seventeen_matrices_per_level():
    # three hidden levels: measured 15.4 at 400 steps, 14.6 at 1000
    asked = problem(400, data=GaussianData(dimension=60, samples=90, label_noise=0.3))
    lazyrich.predict(asked.with_values({"training.steps": 2}))
    tracemalloc.start()
    lazyrich.predict(asked)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 17 * 3 * 8 * 400**2
    assert peak < required_memory(asked, 1)
