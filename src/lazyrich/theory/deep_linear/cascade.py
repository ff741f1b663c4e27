"""The hidden levels of the equations, one time step at a time (docs/theory/deep-linear.md, "The cascade").

Level l is a two-port: from the input side ``h = a + S g``, from the output side ``g = b + R h``, with independent
Gaussian a and b. All responses are divided (g-side) or multiplied (h-side) by kappa such that only kappa^2 appears,
which may be zero.
"""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.rows import Rows

# Order of the matrices in the two stacks of a level; the last two only in networks with skips.
# gradient side, multiplied by rows of S: what g answers, and the covariances of g with h and g
_GRADIENT_STACK = ("dg_db", "dg_da", "cov_gh", "cov_gg", "left_gh", "left_gg")
# feature side, multiplied by rows of R
_FEATURE_STACK = ("dh_da", "dh_db", "cov_hg", "cov_hh", "right_hh", "right_hg")


class Level:
    """One hidden level: covariances and responses of its features h and gradients g, rows filled step by step.

    With K the coupling of h and g, Omega = (1 - K)^-1 and source covariance Sigma, the joint covariance obeys
    ``C = Sigma Omega^T + K C`` and ``Omega = 1 + K Omega``: row t needs rows of K and Sigma only, twelve products
    of a row with a matrix, four of them for each new row of the response.

    Attributes
    ----------
    gradient_stack, feature_stack : ndarray, shape (4 or 6, n, n)
    """

    def __init__(self, size: int, skips: bool) -> None:
        count = 6 if skips else 4
        self.gradient_stack = np.zeros((count, size, size))
        self.feature_stack = np.zeros((count, size, size))
        self.dg_db, self.dg_da, self.cov_gh, self.cov_gg = self.gradient_stack[:4]
        self.dh_da, self.dh_db, self.cov_hg, self.cov_hh = self.feature_stack[:4]
        if skips:
            # the system of this level and the block to its right, cut off at the next level's gradient
            self.left_gh, self.left_gg = self.gradient_stack[4:]
            self.left_hh, self.left_hg = np.zeros((2, size, size))
            # the system of this level and the block to its left, cut off at the previous level's features
            self.right_hh, self.right_hg = self.feature_stack[4:]
            self.right_gg, self.right_gh = np.zeros((2, size, size))
            self.source_a, self.source_b = np.zeros((2, size, size))


class Cascade:
    """All hidden levels of a network.

    Attributes
    ----------
    levels : list of Level
        Length ``blocks + 1``.
    """

    def __init__(self, limit: Limit, rows: Rows) -> None:
        self.limit, self.rows = limit, rows
        self.skips = limit.skip != 0.0 and limit.blocks > 0
        self.levels = [Level(limit.size, self.skips) for _ in range(limit.blocks + 1)]
        self.eye = np.eye(limit.outputs)

    def backward(self, step: int) -> None:
        """Rows of the gradient side, from the output down to the input level."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        output = self.rows.layer(-1)
        coupling = output.gain_by_output(step)
        source = output.initial_by_output(step, limit.variances[-1])
        self._block_gradients = [np.empty(0)] * (limit.blocks + 1)
        for index in range(limit.blocks, -1, -1):
            level = self.levels[index]
            products = self._gradient_rows(level, step, coupling, source)
            if index == 0:
                break
            layer = self.rows.layer(index)
            scale = limit.branch**2
            initial = layer.initial(step, scale * limit.variances[index])
            block = initial[:, past] * level.dg_da[now, past]  # Q / kappa
            block += scale * layer.gain(step)[:, past] * level.cov_gg[now, past]
            block_source = initial[:, upto] * level.cov_gg[now, upto]
            if self.skips:
                self._block_gradients[index] = block
                coupling, source = self._step_right(index, step, products, source, block, block_source)
            else:
                coupling, source = block, block_source

    def _gradient_rows(self, level: Level, step: int, coupling: np.ndarray, source: np.ndarray) -> np.ndarray:
        """Row of g at one level from its rows of R / kappa and cov(b); returns R times the feature stack."""
        square, now, past, upto = self.limit.richness_squared, *self.rows.slices(step)
        products = coupling @ level.feature_stack[:, past, past]
        level.dg_da[now, past] = products[0]
        level.dg_db[now, past] = square * products[1]
        level.dg_db[now, now] = self.eye
        before = source[:, past]
        cov_gg, cov_gh = level.cov_gg, level.cov_gh
        cov_gg[now, past] = before @ level.dg_db[past, past].T + square * products[2]
        cov_gh[now, past] = before @ level.dh_db[past, past].T + products[3]
        level.cov_hg[past, now] = cov_gh[now, past].T
        cov_gg[now, now] = source @ level.dg_db[now, upto].T + square * (coupling @ cov_gh[now, past].T)
        cov_gg[past, now] = cov_gg[now, past].T
        return products

    def _step_right(
        self,
        index: int,
        step: int,
        products: np.ndarray,
        source: np.ndarray,
        block: np.ndarray,
        block_source: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of R / kappa and cov(b) one level further left, through a block with a skip."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        level, scale = self.levels[index], limit.skip**2
        level.source_b[now, upto], level.source_b[upto, now] = source, source.T
        level.right_gh[now, past] = products[4]
        level.right_gg[now, past] = limit.richness_squared * products[5]
        level.right_gg[now, now] = self.eye
        own = level.right_gg[now, upto] @ level.source_b[upto, upto] @ level.right_gg[upto, upto].T
        layer = self.rows.layer(index)
        decay = layer.initial_vector(step)[past]
        features = self.levels[index - 1].cov_hh
        crossed = (level.right_gh[now, past] * decay) @ features[past, past]
        crossed *= decay * (limit.richness_squared * limit.branch**2 * limit.variances[index])
        own += crossed @ level.right_gh[upto, past].T
        return scale * level.right_gh[now, past] + block, scale * own + block_source

    def forward(self, step: int, coupling: np.ndarray, source: np.ndarray) -> None:
        """Rows of the feature side, from the input up, given the rows of S / kappa and cov(a) of level 0."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        scale = limit.branch**2
        for index, level in enumerate(self.levels):
            last = index == limit.blocks
            if self.skips:
                self._prepare_left(level, step, None if last else self._block_gradients[index + 1])
            products = self._feature_rows(level, step, coupling, source)
            if last:
                break
            layer = self.rows.layer(index + 1)
            initial = layer.initial(step, scale * limit.variances[index + 1])[:, upto]
            block = initial * level.dh_db[now, upto]  # P / kappa of the next block
            block += scale * layer.gain(step)[:, upto] * level.cov_hh[now, upto]
            block_source = initial * level.cov_hh[now, upto]
            if self.skips:
                coupling, source = self._step_left(index, step, products, source, block, block_source)
            else:
                coupling, source = block, block_source

    def _feature_rows(self, level: Level, step: int, coupling: np.ndarray, source: np.ndarray) -> np.ndarray:
        """Row of h at one level from its rows of S / kappa and cov(a); returns S times the gradient stack."""
        square, now, past, upto = self.limit.richness_squared, *self.rows.slices(step)
        products = coupling @ level.gradient_stack[:, upto, upto]
        level.dh_db[now, upto] = products[0]
        level.dh_da[now, upto] = square * products[1]
        level.dh_da[now, now] += self.eye
        cov_hh, cov_hg = level.cov_hh, level.cov_hg
        cov_hg[now, upto] = source @ level.dg_da[upto, upto].T + products[3]
        level.cov_gh[upto, now] = cov_hg[now, upto].T
        cov_hh[now, past] = source[:, past] @ level.dh_da[past, past].T + square * products[2][:, past]
        cov_hh[now, now] = source @ level.dh_da[now, upto].T + square * (coupling @ level.cov_gh[upto, now])
        cov_hh[past, now] = cov_hh[now, past].T
        return products

    def _prepare_left(self, level: Level, step: int, block: np.ndarray | None) -> None:
        """Rows of the gradient in the system cut off to the right of the next block, Q / kappa given."""
        if block is None:
            return
        now, past, _ = self.rows.slices(step)
        level.left_gh[now, past] = block @ level.left_hh[past, past]
        level.left_gg[now, past] = self.limit.richness_squared * (block @ level.left_hg[past, past])
        level.left_gg[now, now] = self.eye

    def _step_left(
        self,
        index: int,
        step: int,
        products: np.ndarray,
        source: np.ndarray,
        block: np.ndarray,
        block_source: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of S / kappa and cov(a) one level further right, through a block with a skip."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        level, following, scale = self.levels[index], self.levels[index + 1], limit.skip**2
        level.source_a[now, upto], level.source_a[upto, now] = source, source.T
        level.left_hh[now, upto] = limit.richness_squared * products[4]
        level.left_hh[now, now] += self.eye
        level.left_hg[now, upto] = products[5]
        own = level.left_hh[now, upto] @ level.source_a[upto, upto] @ level.left_hh[upto, upto].T
        decay = self.rows.layer(index + 1).initial_vector(step)
        crossed = (level.left_hg[now, upto] * decay) @ following.cov_gg[upto, upto]
        crossed *= decay * (limit.richness_squared * limit.branch**2 * limit.variances[index + 1])
        own += crossed @ level.left_hg[upto, upto].T
        # the system seen from the next level to the left, for the gradient side of later steps
        following.right_hh[now, past] = limit.richness_squared * (block @ following.right_gh[upto, past])
        following.right_hh[now, now] = self.eye
        following.right_hg[now, upto] = block @ following.right_gg[upto, upto]
        return scale * level.left_hg[now, upto] + block, scale * own + block_source
