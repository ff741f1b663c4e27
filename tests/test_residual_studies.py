"""The studies of residual networks and the page about them work as shown, at small sizes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import lazyrich
from lazyrich.problem.files import ResidualStudy
from lazyrich.problem.residual import ResidualProblem
from lazyrich.transfer.analysis import analyse
from lazyrich.transfer.sweep import run_sweep

ROOT = Path(__file__).parent.parent
STUDIES = [path for path in sorted((ROOT / "studies").glob("*.toml")) if 'kind = "residual"' in path.read_text("utf-8")]
PAGE = (ROOT / "docs" / "residual.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def small(path: Path) -> ResidualStudy:
    """The same study with narrow and shallow networks, few samples and steps, and two values of every other axis."""
    tables = tomllib.loads(path.read_text("utf-8"))
    tables["network"] |= {"width": 4, "blocks": 2, "base_blocks": 1}
    tables["data"] |= {"samples": 12, "test_samples": 5}
    tables["training"] |= {"steps": 4, "batch": 4}
    axes = tables["transfer"]["axes"]
    for key in ("network.width", "network.blocks"):
        axes |= {key: [2]} if key in axes else {}
    axes |= {key: [values[0], values[-1]] for key, values in axes.items() if len(values) > 2}
    tables["transfer"] |= {"rates": [0.05, 0.5], "seeds": 2}
    if "at" in tables["transfer"]:
        tables["transfer"]["at"] = [1, 3]
    return ResidualStudy(**tables)


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_studies_run(path, tmp_path):
    whole = lazyrich.load_study(path)
    assert isinstance(whole, ResidualStudy) and f"lazyrich transfer studies/{path.name}" in path.read_text("utf-8")
    study = small(path)
    sweep = run_sweep(study, tmp_path / "results", workers=1)
    analysis = analyse(sweep)
    assert len(analysis.best) == len(study.transfer_points()) * len(study.transfer.at or [3])
    assert all(np.isfinite(best.losses).any() for best in analysis.best)


def test_problem_files_of_the_page(tmp_path):
    first, data = blocks("toml")
    path = tmp_path / "problem.toml"
    path.write_text(first)
    problem = lazyrich.load_problem(path)
    assert isinstance(problem, ResidualProblem)
    head, rest = first.split("[data]")
    path.write_text(head + data + "[training]" + rest.split("[training]")[1])
    other = lazyrich.load_problem(path)
    assert isinstance(other, ResidualProblem) and other.has_test_loss
    shallow = other.with_values({"network.blocks": 2, "network.width": 8, "training.steps": 2, "training.batch": 8})
    assert lazyrich.train(shallow, seeds=2).outcome.kind == "finished"


def test_example_of_the_page(tmp_path, monkeypatch, capsys):
    (example,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "residual.md", "exec"), {})
    outcome, accuracy = capsys.readouterr().out.split()
    assert outcome == "finished" and float(accuracy) > 0.6  # 0.25 by chance
    assert (tmp_path / "residual.png").stat().st_size > 10_000
