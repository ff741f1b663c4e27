"""The hidden levels of the equations, one time step at a time (docs/theory/deep-linear.md, "The cascade").

Level l is a two-port: from the input side ``h = a + S g``, from the output side ``g = b + R h``, with independent
Gaussian a and b. Responses between h and g are divided by kappa, as are S, R and cov(g, h), such that only kappa^2
appears, which may be zero. Features and gradients obey mirror images of the same equations: one function serves both.
"""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.products import GrowingProduct
from lazyrich.theory.deep_linear.rows import Rows


class Level:
    """One hidden level: covariances and responses of its features h and gradients g, rows filled step by step.

    With K the coupling of h and g, Omega = (1 - K)^-1 and source covariance Sigma, the joint covariance obeys
    ``C = Sigma Omega^T + K C`` and ``Omega = 1 + K Omega``: row t needs rows of K and Sigma only, twelve products of
    a row with a matrix. The stack is ordered such that they are four calls, and such that reversing it exchanges
    features and gradients: ``cov_gg, cov_gh, dg_db, dg_da, dh_db, dh_da, cov_hg, cov_hh``.

    Attributes
    ----------
    stack : ndarray, shape (8, n, n)
    features, gradients : Side
        The stack as the feature side sees it (the gradients' half first), and reversed.
    left, right : CutSystem
        In networks with skips: this level and the block to its right without what follows that block, and this level
        and the block to its left without what comes before it.
    source_a, source_b : ndarray, shape (n, n)
        cov(a) and cov(b), in networks with skips.
    through_left, through_right : Passage
        What passes the cut system's block along its skip, in networks with skips.
    """

    def __init__(self, limit: Limit, skips: bool) -> None:
        self.stack = np.zeros((8, limit.size, limit.size))
        for own in self.stack[2:6:3]:  # g answers b at once, and h answers a
            np.fill_diagonal(own, 1.0)
        self.features = Side(self.stack, limit)
        self.gradients = Side(self.stack[::-1], limit)
        self.cov_gg, self.cov_gh, self.dg_db, self.dg_da, self.dh_db, self.dh_da, self.cov_hg, self.cov_hh = self.stack
        if skips:
            self.left, self.right = CutSystem(limit), CutSystem(limit)
            self.source_a, self.source_b = np.zeros((2, limit.size, limit.size))
            self.through_left = Passage(self.left.features, self.source_a, limit)
            self.through_right = Passage(self.right.gradients, self.source_b, limit)
            self.by_cov_gg, self.by_cov_hh = (
                GrowingProduct(covariance[None], mirrors=covariance[None], several=limit.outputs > 1)
                for covariance in (self.cov_gg, self.cov_hh)
            )


class Side:
    """The stack of a level in the order in which one side sees it, and the products that its rows need.

    Attributes
    ----------
    stack : ndarray, shape (8, n, n)
    coupled, answered : GrowingProduct
        With what the other side covers and answers, and with the transposed responses to the source of this side.
    """

    def __init__(self, stack: np.ndarray, limit: Limit) -> None:
        self.stack, several = stack, limit.outputs > 1
        self.coupled = GrowingProduct(stack[:4], mirrors=stack[0:7:6], several=several)
        self.answered = GrowingProduct(stack[3:6:2], transposed=True, several=several)


class CutSystem:
    """Responses of h and g to each other where one more block is coupled to a level and the rest is cut off.

    Attributes
    ----------
    features, gradients : ndarray, shape (2, n, n)
        Of h to sources in g and h, of g to sources in h and g.
    by_features, by_gradients : GrowingProduct
        With those to the own source, then those to the other side's.
    """

    def __init__(self, limit: Limit) -> None:
        self.features, self.gradients = np.zeros((2, 2, limit.size, limit.size))
        self.by_features, self.by_gradients = (
            GrowingProduct(responses[::-1], several=limit.outputs > 1) for responses in (self.features, self.gradients)
        )


class Passage:
    """Products with what passes a block along its skip.

    Attributes
    ----------
    near : ndarray, shape (2, n, n)
        Responses of the cut system's near side.
    stored : ndarray, shape (n, n)
        Covariance of its source.
    by_stored, by_own, by_cross : GrowingProduct
        With that covariance, and with the transposed responses.
    """

    def __init__(self, near: np.ndarray, stored: np.ndarray, limit: Limit) -> None:
        self.near, self.stored, several = near, stored, limit.outputs > 1
        self.by_stored = GrowingProduct(stored[None], mirrors=stored[None], several=several)
        self.by_own = GrowingProduct(near[1:], transposed=True, several=several)
        self.by_cross = GrowingProduct(near[:1], transposed=True, several=several)


def symmetrize(blocks: np.ndarray) -> None:
    """Make square blocks (.., r, r), which are symmetric but for rounding, symmetric.

    What is left of rounding there would grow over long strides (strides.py), though not over single steps.
    """
    blocks += blocks.swapaxes(-1, -2).copy()
    blocks *= 0.5


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
        self.levels = [Level(limit, self.skips) for _ in range(limit.blocks + 1)]
        self._eye = np.eye(limit.outputs)
        # what rows of products with the other side's own and cross matrices are multiplied with
        self._powers = np.array([1.0, limit.richness_squared] * 2)[:, None, None]

    def backward(self, step: int) -> None:
        """Rows of the gradient side, from the output down to the input level."""
        limit, output = self.limit, self.rows.layer(-1)
        if limit.blocks > 0:  # all blocks are trained alike
            stop, block = self.rows.slices(step)[2].stop, self.rows.layer(1)
            self._gain = limit.branch**2 * block.gain(step, stop)
            self._initial = block.initial(step, stop, limit.branch**2 * limit.variances[1])
        coupling = output.gain_by_output(step)
        source = output.initial_by_output(step, limit.variances[-1])
        for index in range(limit.blocks, -1, -1):
            level = self.levels[index]
            rows = self._fill(level.gradients, step, coupling, source)
            if index == 0:
                break
            block, block_source = self._block(rows)  # Q / kappa, cov(xi)
            if self.skips:
                before = self.levels[index - 1]
                self._respond(level.right.gradients, level.right.by_features, step, coupling)
                self._respond(before.left.gradients, before.left.by_features, step, block)
                through = self._through(level.through_right, source, before.by_cov_hh, step)
                coupling, source = through[0] + block, through[1] + block_source
            else:
                coupling, source = block, block_source

    def forward(self, step: int, coupling: np.ndarray, source: np.ndarray) -> None:
        """Rows of the feature side, from the input up, given the rows of S / kappa and cov(a) of level 0."""
        for index, level in enumerate(self.levels):
            rows = self._fill(level.features, step, coupling, source)
            if index == self.limit.blocks:
                break
            block, block_source = self._block(rows)  # P / kappa, cov(chi)
            if self.skips:
                after = self.levels[index + 1]
                self._respond(level.left.features, level.left.by_gradients, step, coupling)
                self._respond(after.right.features, after.right.by_gradients, step, block)
                through = self._through(level.through_left, source, after.by_cov_gg, step)
                coupling, source = through[0] + block, through[1] + block_source
            else:
                coupling, source = block, block_source

    def _fill(self, side: Side, step: int, coupling: np.ndarray, source: np.ndarray) -> np.ndarray:
        """Row `step` of one side of a level, from its rows of S or R (over kappa) and of the source's covariance.

        Returns
        -------
        ndarray, shape (4, outputs, upto)
            Covariances with the other side and with itself, responses to the other side and to itself, the latter
        without the immediate one.
        """
        stack, (now, past, upto) = side.stack, self.rows.slices(step)
        rows = side.coupled(coupling[None])  # of the other side: own and cross covariance, own and cross response
        rows *= self._powers
        stack[4, now, upto], stack[5, now, past] = rows[2], rows[3, :, past]
        covariances = rows[:2]
        covariances += side.answered(source[None])
        # the equal-time covariance lacks the column of the cross covariance that is known only now
        if self.limit.outputs == 1:  # a product of matrices takes three times as long
            covariances[1, 0, -1] += self.limit.richness_squared * np.vdot(coupling, covariances[0])
        else:
            covariances[1, :, now] += self.limit.richness_squared * (coupling @ covariances[0].T)
            symmetrize(covariances[1, :, now])
        stack[6:, now, upto] = covariances
        stack[1::6, upto, now] = covariances.transpose(0, 2, 1)
        return rows

    def _block(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P or Q (over kappa) and of cov(chi) or cov(xi), from what :meth:`_fill` returned."""
        both = rows[1:3] * self._initial
        both[1] += self._gain * rows[1]
        return both[1], both[0]

    def _respond(self, mine: np.ndarray, by_theirs: GrowingProduct, step: int, coupling: np.ndarray) -> None:
        """Row `step` of one side of a cut system: responses to the other side and to itself."""
        now, _, upto = self.rows.slices(step)
        rows = by_theirs(coupling[None])
        rows[1] *= self.limit.richness_squared
        rows[1, :, now] += self._eye
        mine[:, now, upto] = rows

    def _through(
        self, passage: Passage, source: np.ndarray, by_other: GrowingProduct, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What passes a block along its skip: rows of a coupling and of a source covariance, one level further on.

        Parameters
        ----------
        passage : Passage
        source : ndarray
            Row `step` of the covariance of the source at this level, not stored yet.
        by_other : GrowingProduct
            With the covariance that the block's random weights pass to the far side.
        """
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        block, scale = self.rows.layer(1), limit.skip**2
        passage.stored[now, upto], passage.stored[upto, now] = source, source.T
        cross, own = passage.near[:, now, upto]
        straight = passage.by_own(passage.by_stored(own[None]))[0]
        turned = passage.by_cross(block.decayed(by_other(block.decayed(cross)[None])))[0]
        turned *= scale * limit.richness_squared * limit.branch**2 * limit.variances[1]
        return scale * cross, scale * straight + turned
