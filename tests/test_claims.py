"""The figures of docs/claims.md are what the studies give, by theory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lazyrich

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def losses(study: str, step: int) -> dict:
    problems = lazyrich.load_study(ROOT / "studies" / f"{study}.toml").problems()
    return {tuple(point.values()): float(lazyrich.predict(problem).test_loss[step]) for point, problem in problems}


def assert_printed(values, digits: int) -> None:
    """The values stand in the page in this order, rounded to so many significant digits."""
    text = ", ".join(np.format_float_positional(v, precision=digits, fractional=False, trim="-") for v in values)
    assert text in PAGE, text


def test_width_at_a_fixed_rate():
    found = losses("d2-width-at-fixed-rate", 39)
    assert_printed([found[width, "mup"] for width in (100, 200, 800)], 2)
    assert found[100, "mup"] > found[200, "mup"] > found[800, "mup"]
    assert found[100, "ntk"] < found[200, "ntk"] < found[800, "ntk"]


def test_repeated_data():
    samples = (100, 200, 400, 1600)
    early, late = losses("d4-repeated-data", 2), losses("d4-repeated-data", 99)
    assert_printed([early[count,] for count in samples], 3)
    assert early[100,] / early[1600,] < 1.2 and late[100,] / late[1600,] > 30


def test_online():
    found = losses("d5-online", 59)
    for width in (100, 400):
        assert found[400, width] < found[100, width]
    for batch in (100, 400):
        assert found[batch, 400] < found[batch, 100] / 10


def test_depth_and_richness():
    found = losses("d7-deep-and-rich", 49)
    rich = [found[richness, 1.0] for richness in (0.5, 1.0, 2.0, 4.0)]
    assert rich == sorted(rich, reverse=True)
    assert_printed([0.1036], 3)
    for beta0, growth in ((0.5, 1.282), (1.0, 2.638)):
        assert (1 + beta0**2 / 16) ** 16 == pytest.approx(growth, abs=5e-4)
        assert str(growth) in PAGE
