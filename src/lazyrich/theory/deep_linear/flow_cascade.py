"""The hidden levels of gradient flow, one node at a time: rows that depend on themselves, swept until they settle.

The equations are those of docs/theory/deep-linear.md, "The cascade"; with an implicit integrator features and gradients
of one node depend on each other, so that every row reads the last guess of the other side's row.
"""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.limit import Limit

# The stack of a level, as its features see it; reversed, as its gradients see it.
_STACK = ("cov_gg", "cov_gh", "dg_db", "dg_da", "dh_db", "dh_da", "cov_hg", "cov_hh")


class FlowLevel:
    """One hidden level: covariances and responses of its features h and gradients g; see the cascade of descent."""

    cov_gg: np.ndarray
    cov_gh: np.ndarray
    dg_db: np.ndarray
    dg_da: np.ndarray
    dh_db: np.ndarray
    dh_da: np.ndarray
    cov_hg: np.ndarray
    cov_hh: np.ndarray

    def __init__(self, size: int, skips: bool) -> None:
        self.of_features = np.zeros((8, size, size))
        self.of_gradients = self.of_features[::-1]
        for name, matrix in zip(_STACK, self.of_features, strict=True):
            setattr(self, name, matrix)
        self.skips = skips
        if skips:
            self.left, self.right = CutPair(size), CutPair(size)
            self.source_a, self.source_b = np.zeros((2, size, size))

    def matrices(self) -> list[np.ndarray]:
        """All that a row has to be guessed of."""
        cut = [self.left.features, self.right.features, self.source_a[None]] if self.skips else []
        return [self.of_features[4:], *cut]


class CutPair:
    """Responses of h and g where one more block is coupled to a level and the rest is cut off; shape (2, n, n)."""

    def __init__(self, size: int) -> None:
        self.features, self.gradients = np.zeros((2, 2, size, size))


class FlowCascade:
    """All hidden levels of a network under gradient flow."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.skips = limit.skip != 0.0 and limit.blocks > 0
        self.levels = [FlowLevel(limit.size, self.skips) for _ in range(limit.blocks + 1)]
        self._eye = np.eye(limit.outputs)
        self._decays = [np.repeat(memory.decay, limit.outputs) for memory in limit.memories]

    def slices(self, node: int) -> tuple[slice, slice]:
        """Rows of a node, and all rows up to and with it."""
        outputs = self.limit.outputs
        return slice(node * outputs, (node + 1) * outputs), slice(0, (node + 1) * outputs)

    def gain(self, layer: int, node: int) -> np.ndarray:
        """m(t, s) of a layer for all pairs of outputs, s up to `node`."""
        return np.repeat(self.limit.memories[layer].gain[node, : node + 1], self.limit.outputs)

    def initial(self, layer: int, node: int, factor: float) -> np.ndarray:
        """``factor d(t) d(s)`` of a layer, s up to `node`."""
        decay = self._decays[layer]
        return (factor * self.limit.memories[layer].decay[node]) * decay[: (node + 1) * self.limit.outputs]

    def guess(self, node: int) -> None:
        """Start the features' rows of a node from those of the last two, continued in a straight line."""
        (now, upto), (before, _) = self.slices(node), self.slices(node - 1)
        for stack in self._stacks():
            row = stack[:, before, upto].copy()
            if node > 2:
                earlier, known = self.slices(node - 2)
                row[..., known] = 2 * row[..., known] - stack[:, earlier, known]
            row[..., now] = row[..., before]
            stack[:, now, upto] = row
        self._mirror(now, upto)

    def rows(self, node: int) -> list[np.ndarray]:
        """Copies of the features' rows of a node, on which the next sweep will depend."""
        now, upto = self.slices(node)
        return [stack[:, now, upto].copy() for stack in self._stacks()]

    def put(self, node: int, rows: list[np.ndarray]) -> None:
        """The inverse of :meth:`rows`."""
        now, upto = self.slices(node)
        for stack, row in zip(self._stacks(), rows, strict=True):
            stack[:, now, upto] = row
        self._mirror(now, upto)

    def _stacks(self) -> list[np.ndarray]:
        return [stack for level in self.levels for stack in level.matrices()]

    def _mirror(self, now: slice, upto: slice) -> None:
        for level in self.levels:
            level.cov_hh[upto, now] = level.cov_hh[now, upto].T
            level.cov_gh[upto, now] = level.cov_hg[now, upto].T
            if self.skips:
                level.source_a[upto, now] = level.source_a[now, upto].T

    def backward(self, node: int) -> None:
        """Rows of the gradient side, from the output down to the input level, with the features' rows as they are."""
        limit, (now, upto) = self.limit, self.slices(node)
        memory = limit.memories[-1]
        self._block_rows(node)
        coupling = np.kron(memory.gain[node, : node + 1], self._eye)
        source = np.kron(limit.variances[-1] * memory.decay[node] * memory.decay[: node + 1], self._eye)
        for index in range(limit.blocks, -1, -1):
            level = self.levels[index]
            rows = self._fill(level.of_gradients, now, upto, coupling, source)
            if index == 0:
                break
            block, block_source = self._block(rows)  # Q / kappa, cov(xi)
            if self.skips:
                before = self.levels[index - 1]
                self._respond(level.right.gradients, level.right.features, now, upto, coupling)
                self._respond(before.left.gradients, before.left.features, now, upto, block)
                through = self._through(level.right.gradients, level.source_b, source, before.cov_hh, now, upto)
                coupling, source = through[0] + block, through[1] + block_source
            else:
                coupling, source = block, block_source

    def forward(self, node: int, coupling: np.ndarray, source: np.ndarray) -> None:
        """Rows of the feature side, from the input up, given the rows of S / kappa and cov(a) of level 0."""
        now, upto = self.slices(node)
        for index, level in enumerate(self.levels):
            rows = self._fill(level.of_features, now, upto, coupling, source)
            if index == self.limit.blocks:
                break
            block, block_source = self._block(rows)  # P / kappa, cov(chi)
            if self.skips:
                after = self.levels[index + 1]
                self._respond(level.left.features, level.left.gradients, now, upto, coupling)
                self._respond(after.right.features, after.right.gradients, now, upto, block)
                through = self._through(level.left.features, level.source_a, source, after.cov_gg, now, upto)
                coupling, source = through[0] + block, through[1] + block_source
            else:
                coupling, source = block, block_source

    def _block_rows(self, node: int) -> None:
        limit = self.limit
        if limit.blocks > 0:  # all blocks are trained alike
            self._gain = limit.branch**2 * self.gain(1, node)
            self._initial = self.initial(1, node, limit.branch**2 * limit.variances[1])
            self._decay = self._decays[1][: (node + 1) * limit.outputs]

    def _fill(self, stack: np.ndarray, now: slice, upto: slice, coupling: np.ndarray, source: np.ndarray) -> np.ndarray:
        """Row of one side of a level, ``Omega = 1 + K Omega`` and ``C = Sigma Omega^T + K C``; shape (4, C, upto).

        Covariances with the other side and with itself, responses to the other side and to itself.
        """
        square = self.limit.richness_squared
        rows = coupling @ stack[:4, upto, upto]  # of the other side: own and cross covariance, own and cross response
        rows[1::2] *= square
        rows[3, :, now] += self._eye
        stack[4:6, now, upto] = rows[2:]
        rows[1, :, now] = 0.0  # by the column of the cross covariance that the last guess left
        covariances = rows[:2]
        covariances += source @ stack[3:6:2, upto, upto].transpose(0, 2, 1)
        covariances[1, :, now] += square * (coupling @ covariances[0].T)
        stack[6:, now, upto] = covariances
        stack[1::6, upto, now] = covariances.transpose(0, 2, 1)
        return rows

    def _block(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P or Q (over kappa) and of cov(chi) or cov(xi), from what :meth:`_fill` returned."""
        both = rows[1:3] * self._initial
        both[1] += self._gain * rows[1]
        return both[1], both[0]

    def _respond(self, mine: np.ndarray, theirs: np.ndarray, now: slice, upto: slice, coupling: np.ndarray) -> None:
        """Row of one side of a cut pair: responses to the other side and to itself."""
        rows = coupling @ theirs[::-1, upto, upto]
        rows[1] *= self.limit.richness_squared
        rows[1, :, now] += self._eye
        mine[:, now, upto] = rows

    def _through(
        self, mine: np.ndarray, stored: np.ndarray, source: np.ndarray, other: np.ndarray, now: slice, upto: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """What passes a block along its skip: rows of a coupling and of a source covariance, one level further on."""
        limit, scale = self.limit, self.limit.skip**2
        stored[now, upto], stored[upto, now] = source, source.T
        cross, own = mine[:, now, upto]
        straight = own @ stored[upto, upto] @ mine[1, upto, upto].T
        turned = ((cross * self._decay) @ other[upto, upto] * self._decay) @ mine[0, upto, upto].T
        turned *= scale * limit.richness_squared * limit.branch**2 * limit.variances[1]
        return scale * cross, scale * straight + turned
