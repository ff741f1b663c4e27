"""The studies of depth claims run, at small sizes, and say what docs/claims.md says of them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import lazyrich

ROOT = Path(__file__).parent.parent


def study(name: str, **options) -> list[str]:
    return runpy.run_path(str(ROOT / "studies" / f"{name}.py"))["study"](**options)


def number(text: str, line: str) -> float:
    found = re.search(rf"{re.escape(text)} ([-+]?[\d.]+)", line)
    assert found, line
    return float(found[1])


def test_classes():
    (line,) = study("t1-classes", optimizers=["sign"], branches=(), seeds=4)
    assert line == "sign: 25 right, 0 undetermined, 0 wrong; diverse: [(0.5, 0.5)]"


def test_diversity():
    lines = study("t4-diversity", kinds=["relu"], depths=(16, 64, 128), steps=0, seeds=6)
    assert [line.partition("exponent ")[2][:3] for line in lines] == ["1/2", "0; ", "0; "]
    assert all("the naive fit reads 0.50" in line for line in lines)


def test_second_order():
    lines = study("t6-second-order", kinds=[("tanh", 1.0, 0.05)], depths=(8, 32, 128))
    assert len(lines) == 3
    for line in lines:
        assert abs(number("slope", line) - number("theory", line)) < 0.05, line


def test_pre_norm():
    lines = study("t8-pre-norm", width=256, blocks=8, seeds=4, shown=(8,))
    plain = lines[0]
    # at width 256 the error of the mean over 4 networks is 0.006; the printed recursion is 0.3 away
    assert abs(number("correlation", plain) - number("kernel", plain)) < 0.03
    assert number("correlation", plain) - number("printed", plain) > 0.2


def test_linear_limit():
    lines = study("t11-linear-limit", depths=(4, 16), widths=((64, 32),), blocks=4)
    assert "infinite depth 0.025304" in lines[0] and "4: 0.046138" in lines[0]
    assert "infinite depth 0.130476" in lines[4] and "equation in depth 0.130476" in lines[4]
    for line in lines[1::2]:
        assert number("largest z", line) < 5.0


def test_example_of_the_theory_page(capsys):
    page = (ROOT / "docs" / "theory" / "depth.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(example, "depth.md", "exec"), {"lazyrich": lazyrich})
    first, second = capsys.readouterr().out.splitlines()
    limit, error = map(float, first.split())
    assert error < 1e-5 * limit and 0 < abs(float(second) - limit) < 0.2 * limit
