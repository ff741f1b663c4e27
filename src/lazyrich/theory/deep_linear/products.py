"""Products of a row with matrices that grow by a row a step (docs/theory/deep-linear.md, "Long trainings")."""

from __future__ import annotations

import numpy as np

# A matrix that ends with fewer rows is cheaper to multiply than to find out what is new in a row.
_SHORT = 384
# Between this many of the latest rows and columns ..
_RECENT = 96
# .. and so many more are multiplied as they are; then the space of the older columns is found anew,
_EVERY = 48
# from every third row, and where several come at a time from some of them in turn.
_STRIDE, _AT_A_TIME = 3, 4
# Directions for which room is made at once.
_ROOM = 16
# What is new in a row and smaller than this, in units of the largest row so far, is left out. Every product that comes
# earlier in a step leaves as much noise in the rows, which no space would hold: hence once more for each.
_NEGLIGIBLE = 3e-14


class GrowingProduct:
    """Rows ``x(t)``, one after the other, times matrices M of which rows and columns up to t are known.

    Reading M is what takes the time. Training is smooth: rows ``x(t)``, ``x(t+1)``, .. of several dozen steps,
    restricted to columns well in the past, lie in a space of one or two dozen dimensions. An orthonormal basis of it
    and the image of this basis under M are kept, and a row is multiplied through its coordinates. No smoothness is
    assumed: what a row has outside the space is measured, and if it is not negligible, multiplied with M and added to
    the basis.

    Parameters
    ----------
    matrices : ndarray, shape (k, n, n)
        Lower triangular, but for the first ones, of which `mirrors` holds the transposes, shape (m, n, n).
    mirrors : ndarray, optional
    transposed : bool
        Multiply with the transposes of `matrices`, all lower triangular, instead.
    stage : int
        How many products are made in a step before the rows of this one are known.
    short : bool
        Only plain products, whatever the size.
    """

    def __init__(
        self,
        matrices: np.ndarray,
        *,
        stage: int,
        mirrors: np.ndarray | None = None,
        transposed: bool = False,
        short: bool = False,
    ) -> None:
        self._matrices = matrices.swapaxes(-1, -2) if transposed else matrices
        self._mirrors = matrices if transposed else matrices[:0] if mirrors is None else mirrors
        self._transposed = transposed
        self._short = short or matrices.shape[-1] <= _SHORT
        self._start, self._next = 0, 2 * _RECENT  # where the recent rows begin, and where this changes
        self._negligible = ((1 + stage) * _NEGLIGIBLE) ** 2
        self._largest = 0.0  # squared norm of a row
        self._rows: list[np.ndarray] = []
        self._count, self._basis, self._images = 0, np.zeros((0, 0)), np.zeros((len(matrices), 0, 0))

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
        if self._short:
            return rows @ self._matrices[:, :stop, :stop]
        if stop > self._next:
            self._advance()
        flat = rows.reshape(-1, stop)
        self._largest = max(self._largest, float(np.vdot(flat, flat)))
        if stop % _STRIDE == 0:
            apart = -(-len(flat) // _AT_A_TIME)
            self._rows.append(flat[stop // _STRIDE % apart :: apart].copy())
        start = self._start
        if start == 0:
            return rows @ self._matrices[:, :stop, :stop]
        past = flat[:, :start]
        basis = self._basis[: self._count]
        coordinates = past @ basis.T
        rest = past - coordinates @ basis
        if np.vdot(rest, rest) > self._negligible * self._largest:
            coordinates = self._extend(rest, coordinates)
        known = coordinates.reshape(*rows.shape[:-1], -1) @ self._images[:, : self._count]
        if self._transposed:
            recent = rows @ self._mirrors[:, start:stop, :stop].swapaxes(-1, -2)
            return np.concatenate([known, recent], axis=-1)
        products = rows[..., start:] @ self._matrices[:, start:stop, :stop]
        products[..., :start] += known
        if len(self._mirrors):
            mirrors = self._mirrors[:, start:stop, :start].swapaxes(-1, -2)
            products[: len(mirrors), :, start:] += rows[..., :start] @ mirrors
        return products

    def _advance(self) -> None:
        """Move the beginning of the recent rows, and find the space anew in which these rows lie before it."""
        self._start = start = self._next - _RECENT
        self._next += _EVERY
        self._rows = [row for row in self._rows if row.shape[-1] > start]
        rows = np.concatenate([row[:, :start] for row in self._rows])
        self._count, self._basis = 0, np.empty((0, start))
        self._images = np.empty((len(self._matrices), 0, start))
        if np.isfinite(rows).all():
            columns, triangle = np.linalg.qr(rows.T)
            turned, values, _ = np.linalg.svd(triangle)
            count = np.count_nonzero(values**2 > self._negligible * self._largest)
            self._add((columns @ turned[:, :count]).T)

    def _extend(self, rest: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Add directions to the basis until nothing of `rest` remains; returns all coordinates of its rows."""
        squares = np.vecdot(rest, rest)
        while self._negligible * self._largest < squares.max() < np.inf:
            direction = rest[squares.argmax()] / np.sqrt(squares.max())
            basis = self._basis[: self._count]
            direction -= (basis @ direction) @ basis  # a small rest is orthogonal to a few digits only
            direction /= np.linalg.norm(direction)
            self._add(direction[None])
            more = rest @ direction[:, None]
            rest = rest - more * direction
            coordinates = np.concatenate([coordinates, more], axis=1)
            squares = np.vecdot(rest, rest)
        return coordinates

    def _add(self, directions: np.ndarray) -> None:
        """Add directions, shape (q, start), to the basis, and their images."""
        start, count = self._start, self._count
        self._count += len(directions)
        if self._count > len(self._basis):
            room = self._count + _ROOM - len(self._basis)
            self._basis = np.pad(self._basis, ((0, room), (0, 0)))
            self._images = np.pad(self._images, ((0, 0), (0, room), (0, 0)))
        self._basis[count : self._count] = directions
        np.matmul(directions, self._matrices[:, :start, :start], out=self._images[:, count : self._count])
