"""The guide's code runs as shown, and so do the studies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from examples import gpt, vit
from examples.gpt_study import SMALL, main, study
from lazyrich.torch import transfer_sweep

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), names)
    out = capsys.readouterr().out
    assert "step 0: as planned" in out
    assert "ends of branches verified by running 2 blocks" in out
    assert "coordinate check over width 32 to 128, 3 steps" in out
    assert "regret in nats" in out and "proven:" in out
    assert (tmp_path / "check.png").stat().st_size > 10_000
    assert (tmp_path / "sweep.html").stat().st_size > 10_000
    assert names["in_forward"].multipliers == {"scale": 0.25}


def test_the_study_of_the_gpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(gpt, {}, SMALL, ["--small", "--workers", "1", "--results", str(tmp_path / "gpt")])
    out = capsys.readouterr().out
    assert "over width" in out and "scheme = complete-p" in out
    for axis in ("width", "depth"):
        for ending in ("png", "html", "txt"):
            assert (tmp_path / "gpt" / f"{axis}.{ending}").stat().st_size > 100


def test_the_study_of_the_vision_transformer(tmp_path: Path) -> None:
    found = study(vit, tmp_path, {**SMALL, "seeds": 1}, workers=1)
    assert len(found["depth"].analysis.best) == 3 * 2


def test_cells_are_found_by_other_processes(tmp_path: Path) -> None:
    options = {"loss": vit.loss, "base": {"width": 16, "depth": 1}, "steps": 2, "seeds": 1, "evaluation": 1}
    sweeps = [
        transfer_sweep(
            vit.make_model, vit.data, {"width": [16, 32]}, [1e-3, 1e-2], folder=tmp_path / str(n), workers=n, **options
        )
        for n in (1, 2)
    ]
    one, other = (sweep.sweep.to_dataset() for sweep in sweeps)
    assert one.equals(other)
