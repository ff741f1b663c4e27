"""The one kind of error that a user can cause: where, what is wrong, what to do."""

from __future__ import annotations


class LazyrichError(ValueError):
    """A problem, data file or option that cannot be used.

    Prints as one line, ``<where>: <what is wrong>; <what to do>``. The command line shows that line and exits
    with status 2.

    Parameters
    ----------
    where : str
        The place: a key such as ``training.steps``, a file, an option.
    what : str
        What is wrong there.
    remedy : str
        What to do about it.
    """

    def __init__(self, where: str, what: str, remedy: str) -> None:
        self.where = where
        self.what = what
        self.remedy = remedy
        super().__init__(" ".join(f"{where}: {what}; {remedy}".split()))

    def inside(self, place: str, joint: str = ".") -> LazyrichError:
        """The same error seen from one level further out, e.g. with the file's name in front."""
        return LazyrichError(f"{place}{joint}{self.where}" if self.where else place, self.what, self.remedy)

    def __reduce__(self) -> tuple[type[LazyrichError], tuple[str, str, str]]:
        return LazyrichError, (self.where, self.what, self.remedy)
