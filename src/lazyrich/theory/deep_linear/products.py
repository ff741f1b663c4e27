"""Products of a row with matrices that grow by a row a step (docs/theory/deep-linear.md, "Long trainings").

Reading the matrices is what takes the time. Training is smooth: rows ``x(t)``, ``x(t+1)``, .. of several dozen steps,
restricted to columns well in the past, lie in a space of one or two dozen dimensions. A basis of it and its image under
the matrix are kept, and a row is multiplied through its coordinates. No smoothness is assumed: what a row has outside
the space is measured, and if it is not negligible, multiplied with the matrix and added to the basis.
"""

from __future__ import annotations

import numpy as np

# Matrices that end with fewer rows are cheaper to multiply than to find out what is new in a row.
SHORT = 384
# Between this many of the latest rows and columns ..
_RECENT = 64
# .. and so many more are multiplied as they are; then the space of the older columns is found anew,
_EVERY = 64
# from every third row, and where several come at a time from some of them in turn.
_STRIDE, _AT_A_TIME = 3, 4
# Where this part of the rows had something new until then, multiplying all of them as they are costs less.
_TOO_MANY = 0.4
# Directions for which room is made at once.
_ROOM = 16
# What is new in a row and smaller than this, in units of the largest row so far, is left out. Rounding is below: a row
# leaves 1e-15 of itself beside a space that holds it. Each product leaves some of what it left out in the rows of the
# next one as noise, for which no space would be large enough: a tenth of this needs half as many directions more.
_NEGLIGIBLE = 1e-13
# Columns of triangular matrices that are multiplied at once: zeros are skipped by the block. Pays for several rows from
# two blocks on, for one row, which is faster in the cache, from five: measured 1.2 times at 500 columns, 1.4 at 1000.
_BLOCK = 100


class RowSpace:
    """The space of older columns that the rows of one kind lie in.

    Attributes
    ----------
    start : int
        Columns before this one are the older ones; 0 as long as there is no space.
    basis : ndarray, shape (count, start)
        Orthonormal.
    coordinates : ndarray
        Of the rows taken last, shape (j, r, count).
    """

    def __init__(self) -> None:
        self.start, self.basis, self.coordinates = 0, np.zeros((0, 0)), np.zeros((0, 0, 0))
        self._next = 2 * _RECENT  # where `start` changes; 0 if no space is worth while
        self._new_rows = 0
        self._negligible = 0.0  # that of the largest rows so far
        self._rows: list[np.ndarray] = []

    def take(self, rows: np.ndarray) -> None:
        """Find the coordinates of new rows.

        Parameters
        ----------
        rows : ndarray, shape (j, r, stop)
            From call to call `stop` grows by one.
        """
        stop = rows.shape[-1]
        if stop > self._next > 0:
            self._advance()
        if self._next == 0:
            return
        flat = rows.reshape(-1, stop)
        self._negligible = max(self._negligible, _NEGLIGIBLE * float(np.vdot(flat, flat)) ** 0.5)
        if stop % _STRIDE == 0:
            apart = -(-len(flat) // _AT_A_TIME)
            self._rows.append(flat[stop // _STRIDE % apart :: apart].copy())
        if self.start == 0:
            return
        past = flat[:, : self.start]
        coordinates = past @ self.basis.T
        rest = past - coordinates @ self.basis
        if np.vdot(rest, rest) > self._negligible**2:
            self._new_rows += 1
            more = rest @ self.basis.T  # a small rest is orthogonal to the basis to a few digits only
            rest -= more @ self.basis
            new = _directions(rest, self._negligible)
            self.basis = np.concatenate([self.basis, new])
            coordinates = np.concatenate([coordinates + more, rest @ new.T], axis=1)
        self.coordinates = coordinates.reshape(*rows.shape[:-1], len(self.basis))

    def _advance(self) -> None:
        """Move `start`, and find the space anew that the rows since then lie in."""
        if self._new_rows > _TOO_MANY * _EVERY:
            self.start = self._next = 0
            return
        self.start = start = self._next - _RECENT
        self._next += _EVERY
        self._new_rows = 0
        self._rows = [row for row in self._rows if row.shape[-1] > start]
        # a finer space than is needed for these rows, so that few of the next ones have anything new
        self.basis = _directions(np.concatenate([row[:, :start] for row in self._rows]), 0.1 * self._negligible)


class GrowingProduct:
    """Rows, one after the other, times matrices of which rows and columns up to theirs are known.

    A triangular matrix is a response: its diagonal, an immediate answer, is multiplied as it is. What the rest and
    covariances do to the part of a row that is left out, which fluctuates, averages it away.

    Parameters
    ----------
    matrices : ndarray, shape (k, n, n)
        Lower triangular, but for the first ones, of which `mirrors` holds the transposes, shape (m, n, n).
    mirrors : ndarray, optional
    transposed : bool
        Multiply with the transposes of `matrices`, all lower triangular, instead.
    several : bool
        Whether rows are those of several outputs: products of matrices do not wait for memory, and are never replaced.
    """

    def __init__(
        self,
        matrices: np.ndarray,
        *,
        mirrors: np.ndarray | None = None,
        transposed: bool = False,
        several: bool = False,
    ) -> None:
        self._matrices = matrices.swapaxes(-1, -2) if transposed else matrices
        self._mirrors = matrices if transposed else matrices[:0] if mirrors is None else mirrors
        self._transposed = transposed
        self._grows = not several and matrices.shape[-1] > SHORT
        self._plain_until = 0 if self._grows else 2 * _BLOCK if several else matrices.shape[-1]
        self._full = 0 if transposed else len(self._mirrors)
        if self._grows:
            self.space = RowSpace()
            self._count, self._images, self._diagonals = 0, np.empty((len(matrices), 0, 0)), np.empty((0, 0, 0))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The products.

        Parameters
        ----------
        rows : ndarray, shape (j, r, stop)
            The same r rows for all matrices, j = 1, or others for each, j = k. From call to call `stop` grows by one.

        Returns
        -------
        ndarray, shape (k, r, stop)
        """
        stop = rows.shape[-1]
        if stop <= self._plain_until:
            return rows @ self._matrices[:, :stop, :stop]
        if not self._grows:
            return self._multiply(rows)
        self.space.take(rows)
        start = self.space.start
        if start == 0:
            return self._multiply(rows)
        images = self._known_images()  # finds the diagonals too
        known = self.space.coordinates @ images
        known[self._full :] += rows[..., :start] * self._diagonals
        if self._transposed:
            recent = rows @ self._mirrors[:, start:stop, :stop].swapaxes(-1, -2)
            return np.concatenate([known, recent], axis=-1)
        products = rows[..., start:] @ self._matrices[:, start:stop, :stop]
        products[..., :start] += known
        if len(self._mirrors):
            mirrors = self._mirrors[:, start:stop, :start].swapaxes(-1, -2)
            products[: len(mirrors), :, start:] += rows[..., :start] @ mirrors
        return products

    def _known_images(self) -> np.ndarray:
        """Images of the basis; those of new directions are found, and there is some room for more of them."""
        start, basis = self.space.start, self.space.basis
        if self._images.shape[-1] != start:
            self._count, self._images = 0, np.empty((len(self._matrices), 0, start))
            self._diagonals = self._matrices[self._full :, range(start), range(start)][:, None]
        known, count = self._count, len(basis)
        if count > known:
            if count > self._images.shape[1]:
                self._images = np.pad(self._images, ((0, 0), (0, count + _ROOM - self._images.shape[1]), (0, 0)))
            new = basis[known:]
            self._images[:, known:count] = self._multiply(new[None])
            self._images[self._full :, known:count] -= new * self._diagonals
            self._count = count
        return self._images[:, :count]

    def _multiply(self, rows: np.ndarray) -> np.ndarray:
        """Products with the matrices as they are, but for zeros."""
        count, stop = rows.shape[-2:]
        matrices, full = self._matrices[:, :stop, :stop], self._full
        if stop < (5 if count == 1 else 2) * _BLOCK:
            return rows @ matrices
        products = np.empty((len(matrices), count, stop))
        if full > 0:
            np.matmul(rows, matrices[:full], out=products[:full])
        for start in range(0, stop if full < len(matrices) else 0, _BLOCK):
            columns = slice(start, start + _BLOCK)
            filled = slice(0, start + _BLOCK) if self._transposed else slice(start, stop)
            np.matmul(rows[..., filled], matrices[full:, filled, columns], out=products[full:, :, columns])
        return products


def _directions(rows: np.ndarray, least: float) -> np.ndarray:
    """Orthonormal directions that hold the rows (j, n) up to singular values of at most `least`; shape (count, n)."""
    if not np.isfinite(rows).all():
        return rows[:0]
    if len(rows) == 1:  # most often
        norm = np.linalg.norm(rows)
        return rows / norm if norm > least else rows[:0]
    columns, triangle = np.linalg.qr(rows.T)
    turned, values, _ = np.linalg.svd(triangle)
    return (columns @ turned[:, : np.count_nonzero(values > least)]).T
