"""Settings of a page: their bounds, how they are written in a link, and when they mean something."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from lazyrich.errors import LazyrichError

# Positions of a slider.
_POSITIONS = 120
_LONGEST_TEXT = 1000

Values = dict[str, Any]
Condition = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Setting:
    """What all settings share.

    Attributes
    ----------
    name : str
        In links; short.
    label : str
        On the page.
    default : float, int or str
    only : dict
        Other settings and the values that they must have for this one to mean something.
    """

    name: str
    label: str
    default: Any
    only: Condition | None = None

    def shown(self, values: Values) -> bool:
        """Whether the setting means something beside these values."""
        return all(values[name] in allowed for name, allowed in (self.only or {}).items())

    def read(self, text: str) -> Any:
        """The value that a text stands for; LazyrichError if none."""
        raise NotImplementedError

    def write(self, value: Any) -> str:
        """The shortest text that reads as this value."""
        return str(value)


@dataclass(frozen=True)
class Number(Setting):
    """A number between two bounds, moved by a slider or typed.

    Attributes
    ----------
    low, high : float
    logarithmic : bool
        Whether the slider moves by a factor.
    whole : bool
    infinite : bool
        Whether ``inf`` may be typed.
    """

    low: float = 0.0
    high: float = 1.0
    logarithmic: bool = False
    whole: bool = False
    infinite: bool = False

    @property
    def positions(self) -> int:
        """Of the slider, counted from 0."""
        return min(_POSITIONS, round(self.high - self.low)) if self.whole else _POSITIONS

    def read(self, text: str) -> float | int:
        """See :meth:`Setting.read`."""
        try:
            value = float(text)
        except ValueError:
            raise LazyrichError(self.name, f"{text[:40]!r} is not a number", "give a number") from None
        if math.isinf(value) and value > 0 and self.infinite:
            return math.inf
        if not self.low <= value <= self.high:
            also = ", or inf" if self.infinite else ""
            what = f"{text[:40]} is out of range"
            raise LazyrichError(self.name, what, f"stay between {self.low:g} and {self.high:g}{also}")
        if not self.whole:
            return value
        if value != int(value):
            raise LazyrichError(self.name, f"{text[:40]} is not a whole number", "give a whole number")
        return int(value)

    def write(self, value: float) -> str:
        """See :meth:`Setting.write`."""
        text = f"{value:.6g}"
        return text if float(text) == value else repr(value)

    def at(self, position: int) -> float | int:
        """The value at a position of the slider, three digits of it."""
        share = position / self.positions
        if self.logarithmic:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + share * (self.high - self.low)
        if self.whole:
            return min(max(round(float(f"{value:.3g}")), round(self.low)), round(self.high))
        return min(max(float(f"{value:.3g}"), self.low), self.high)

    def position(self, value: float) -> int:
        """The position of the slider that is nearest to a value."""
        if math.isinf(value):
            return self.positions
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(share * self.positions)


@dataclass(frozen=True)
class Choice(Setting):
    """One of several values.

    Attributes
    ----------
    options : dict
        Values, as in links and problem files, with what the page shows.
    """

    options: Mapping[str, str] | None = None

    def read(self, text: str) -> str:
        """See :meth:`Setting.read`."""
        options = self.options or {}
        if text not in options:
            raise LazyrichError(self.name, f"{text[:40]!r} is not known", f"choose one of {', '.join(options)}")
        return text


@dataclass(frozen=True)
class Text(Setting):
    """A line of text."""

    def read(self, text: str) -> str:
        """See :meth:`Setting.read`."""
        if len(text) > _LONGEST_TEXT:
            raise LazyrichError(self.name, f"{len(text)} characters are too many", f"give up to {_LONGEST_TEXT}")
        return text


def defaults(settings: Sequence[Setting]) -> Values:
    """Every setting with its default."""
    return {setting.name: setting.default for setting in settings}


def write_query(settings: Sequence[Setting], values: Values) -> str:
    """The part of a link behind its question mark: every setting that means something and is not the default."""
    pairs = [
        (setting.name, setting.write(values[setting.name]))
        for setting in settings
        if setting.shown(values) and values[setting.name] != setting.default
    ]
    return urlencode(pairs)


def read_query(settings: Sequence[Setting], query: str) -> tuple[Values, list[LazyrichError]]:
    """The settings that a link asks for.

    Returns
    -------
    values : dict
        Complete: the default wherever the link says nothing, or nothing that can be used.
    errors : list of LazyrichError
        One for each part that cannot be used.
    """
    values, errors = defaults(settings), []
    known = {setting.name: setting for setting in settings}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return values, [LazyrichError("link", "has too many parts", "copy it again from the page")]
    for name, text in pairs:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else "copy it again from the page"
            errors.append(LazyrichError("link", f"unknown setting {name[:40]!r}", remedy))
            continue
        try:
            values[name] = known[name].read(text)
        except LazyrichError as error:
            errors.append(error.inside("link", joint=": "))
    return values, errors
