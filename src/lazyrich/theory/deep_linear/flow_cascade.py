"""The hidden levels of gradient flow, one node at a time (docs/theory/long-horizons.md).

The equations are those of docs/theory/deep-linear.md, "The cascade". With an implicit integrator the features and the
gradients of one node depend on each other; at each level that is a pair of equations, solved exactly: at small widths
the pair is stiff. What is left to iterate are the rows that one level passes to the next.
"""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.limit import Limit


class Pair:
    """Responses of features h and gradients g that are coupled to each other: ``h = a + S g``, ``g = b + R h``.

    Those between h and g are divided by kappa, as are S, R and cov(g, h), such that only kappa^2 appears.

    Attributes
    ----------
    of_features : ndarray, shape (fields, n, n)
        ``dh_da, dh_db``; at a level, after ``cov_hh, cov_hg``.
    of_gradients : ndarray, shape (fields, n, n)
        ``dg_da, dg_db``; at a level, after ``cov_gh, cov_gg``.
    """

    def __init__(self, size: int, fields: int = 2) -> None:
        self.of_features, self.of_gradients = np.zeros((2, fields, size, size))

    @property
    def features(self) -> np.ndarray:
        """Responses of h, to a source in g and in h; shape (2, n, n)."""
        return self.of_features[-1:-3:-1]

    @property
    def gradients(self) -> np.ndarray:
        """Responses of g, to a source in h and in g; shape (2, n, n)."""
        return self.of_gradients[-2:]


class FlowLevel(Pair):
    """One hidden level of a network.

    Attributes
    ----------
    cov_hh, cov_hg, cov_gh, cov_gg, dh_da, dh_db, dg_da, dg_db : ndarray, shape (n, n)
        Views of the fields.
    passed : ndarray, shape (2, n, n), or (3, n, n) in networks with skips
        Rows that come from the input side: S, cov(a), and the P of the block before.
    left, right : Pair
        In networks with skips: this level and the block to its right without what follows that block, and this level
        and the block to its left without what comes before it.
    source_b : ndarray, shape (n, n)
        cov(b), in networks with skips.
    """

    def __init__(self, size: int, skips: bool) -> None:
        super().__init__(size, fields=4)
        self.cov_hh, self.cov_hg, self.dh_da, self.dh_db = self.of_features
        self.cov_gh, self.cov_gg, self.dg_da, self.dg_db = self.of_gradients
        self.passed = np.zeros((2 + skips, size, size))
        self.source_a = self.passed[1]
        self.skips = skips
        if skips:
            self.left, self.right = Pair(size), Pair(size)
            self.source_b = np.zeros((size, size))

    def matrices(self) -> list[np.ndarray]:
        """Everything whose row has to be guessed before a sweep."""
        return [self.passed, self.of_features[:1]] if self.skips else [self.passed]


class FlowCascade:
    """All hidden levels of a network under gradient flow."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.skips = limit.skip != 0.0 and limit.blocks > 0
        self.levels = [FlowLevel(limit.size, self.skips) for _ in range(limit.blocks + 1)]
        self._eye = np.eye(limit.outputs)
        self._decays = [np.repeat(memory.decay, limit.outputs) for memory in limit.memories]
        square = limit.richness_squared
        # what stands beside R in the equation of g, and beside S in that of h, for each field
        self._beside_right = np.array([1.0, square, 1.0, square])[:, None, None]
        self._beside_left = np.array([square, 1.0, square, 1.0])[:, None, None]

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
        """Start the rows of a node from those of the last two, continued in a straight line."""
        if node == 0:
            return
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
        """Copies of the rows of a node on which the next sweep will depend."""
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
        for level in self.levels if self.skips else ():
            for matrix in (level.cov_hh, level.source_a):
                matrix[upto, now] = matrix[now, upto].T

    def backward(self, node: int) -> None:
        """From the output down to the input level: the gradients' rows, with what is passed from the input as it is."""
        limit, (now, upto) = self.limit, self.slices(node)
        memory = limit.memories[-1]
        if limit.blocks > 0:  # all blocks are trained alike
            self._gain = limit.branch**2 * self.gain(1, node)
            self._initial = self.initial(1, node, limit.branch**2 * limit.variances[1])
            self._decay = self._decays[1][upto]
        self._couplings, self._sources = [], []
        coupling = np.kron(memory.gain[node, : node + 1], self._eye)
        source = np.kron(limit.variances[-1] * memory.decay[node] * memory.decay[: node + 1], self._eye)
        for index in range(limit.blocks, -1, -1):
            level = self.levels[index]
            self._couplings.insert(0, coupling)
            self._sources.insert(0, source)
            self._fill(level, now, upto, coupling, source)
            if index == 0:
                break
            block, block_source = self._block(level.dg_da[now, upto], level.cov_gg[now, upto])  # Q / kappa, cov(xi)
            if self.skips:
                before = self.levels[index - 1]
                self._respond(level.right, now, upto, coupling, level.passed[2, now, upto])
                self._respond(before.left, now, upto, block, before.passed[0, now, upto])
                through = self._through(level.right.gradients, level.source_b, source, before.cov_hh, now, upto)
                coupling, source = through[0] + block, through[1] + block_source
            else:
                coupling, source = block, block_source

    def forward(self, node: int, coupling: np.ndarray, source: np.ndarray) -> None:
        """From the input up: what is passed, given the rows of S / kappa and cov(a) of level 0."""
        now, upto = self.slices(node)
        for index, level in enumerate(self.levels):
            level.passed[0, now, upto] = coupling
            level.passed[1, now, upto], level.source_a[upto, now] = source, source.T
            self._fill(level, now, upto, self._couplings[index], self._sources[index])
            if index == self.limit.blocks:
                break
            block, block_source = self._block(level.dh_db[now, upto], level.cov_hh[now, upto])  # P / kappa, cov(chi)
            if self.skips:
                after = self.levels[index + 1]
                after.passed[2, now, upto] = block
                turning, _ = self._block(after.dg_da[now, upto], after.cov_gg[now, upto])
                self._respond(level.left, now, upto, turning, coupling)
                self._respond(after.right, now, upto, self._couplings[index + 1], block)
                through = self._through(level.left.features, level.source_a, source, after.cov_gg, now, upto)
                coupling, source = through[0] + block, through[1] + block_source
            else:
                coupling, source = block, block_source

    def _fill(self, level: FlowLevel, now: slice, upto: slice, coupling: np.ndarray, source: np.ndarray) -> None:
        """Rows of a level from the rows of R and cov(b), given here, and of S and cov(a), which it holds."""
        square, past = self.limit.richness_squared, slice(0, now.start)
        left, left_source = level.passed[0, now, upto], level.passed[1, now, upto]
        both = self._earlier(level, now, upto, coupling, left)
        features, gradients = both
        # the earlier part of C = Sigma Omega^T + K C
        for index, fields in enumerate((level.of_features, level.of_gradients)):
            to_a, to_b = fields[2:, past, past]
            gradients[index, :, past] += source[:, past] @ to_b.T
            features[index, :, past] += left_source[:, past] @ to_a.T
        self._couple(both, coupling[:, now], left[:, now])
        # covariances of this node's h and g with each other, from those with earlier nodes
        near = [source @ features[3].T, source @ gradients[3].T]
        near[0] += coupling[:, past] @ features[0, :, past].T
        near[1] += square * (coupling[:, past] @ gradients[0, :, past].T)
        far = [left_source @ features[2].T, left_source @ gradients[2].T]
        far[0] += square * (left[:, past] @ features[1, :, past].T)
        far[1] += left[:, past] @ gradients[1, :, past].T
        both[:, :2, :, now] = far, near
        self._couple(both[:, :2, :, now], coupling[:, now], left[:, now])
        level.of_features[:, now, upto], level.of_gradients[:, now, upto] = both
        level.of_features[:2, upto, now] = features[0].T, gradients[0].T
        level.of_gradients[:2, upto, now] = features[1].T, gradients[1].T

    def _respond(self, pair: Pair, now: slice, upto: slice, coupling: np.ndarray, left: np.ndarray) -> None:
        """Rows of a pair's responses from the rows of what couples g to h, and h to g."""
        both = self._earlier(pair, now, upto, coupling, left)
        self._couple(both, coupling[:, now], left[:, now])
        pair.of_features[:, now, upto], pair.of_gradients[:, now, upto] = both

    def _earlier(self, pair: Pair, now: slice, upto: slice, coupling: np.ndarray, left: np.ndarray) -> np.ndarray:
        """The rows of ``K Omega`` and ``K C`` as far as earlier nodes make them, and the identity."""
        past, fields = slice(0, now.start), len(pair.of_features)
        features = self._beside_left[-fields:] * (left[:, past] @ pair.of_gradients[:, past, upto])
        gradients = self._beside_right[-fields:] * (coupling[:, past] @ pair.of_features[:, past, upto])
        features[-2, :, now] += self._eye
        gradients[-1, :, now] += self._eye
        return np.stack([features, gradients])

    def _couple(self, both: np.ndarray, coupling: np.ndarray, left: np.ndarray) -> None:
        """Solve ``h = .. + S(t,t) g``, ``g = .. + R(t,t) h`` in place."""
        features, gradients = both
        fields = slice(0, len(features))  # the scales repeat themselves after two
        solved = np.linalg.inv(self._eye - self.limit.richness_squared * coupling @ left)
        gradients[:] = solved @ (gradients + self._beside_right[fields] * (coupling @ features))
        features += self._beside_left[fields] * (left @ gradients)

    def _block(self, response: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P or Q (over kappa) and of cov(chi) or cov(xi)."""
        return response * self._initial + covariance * self._gain, covariance * self._initial

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
