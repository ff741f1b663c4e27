"""The guides work as shown, every documented command line is one that exists, and the site needs no other host."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from lazyrich.cli.shared import app
from tests.conftest import run_command

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDES = [DOCS / "start.md", DOCS / "extend.md", *sorted((DOCS / "guides").glob("*.md"))]
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def fenced(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The arguments of every line that calls lazyrich."""
    lines = "".join(fenced(page, "")).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("lazyrich ")]


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_guides_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    names = re.findall(r"[Ss]ave\s+this\s+as\s+`([\w.-]+\.toml)`", text)
    problems = fenced(page, "toml")
    assert len(names) == len(problems)
    for name, problem in zip(names, problems, strict=True):
        (tmp_path / name).write_text(problem)
    names = {}
    for example in fenced(page, "python"):
        exec(compile(example, page.name, "exec"), names)
    for words in commands(page):
        finished = run_command(*words)
        assert finished.status == 0, (words, finished.err)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_documented_commands_exist(page):
    group = typer.main.get_command(app)
    for words in commands(page):
        if words[0].startswith("-"):
            continue
        with group.make_context("lazyrich", ["--version"], resilient_parsing=True) as context:
            command = group.get_command(context, words[0])
            assert command is not None, words
            command.make_context(words[0], list(words[1:]), parent=context)  # an unknown option raises


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r"""<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=["']?([^"'>\s]+)""", text)
        assert not [address for address in loaded if re.match(r"(?:https?:)?//", address)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", style.read_text("utf-8")), style


def test_formulas_of_the_site_are_mathml(site):
    source = (DOCS / "theory" / "deep-linear.md").read_text("utf-8")
    page = (site / "theory" / "deep-linear.html").read_text("utf-8")
    assert page.count('<div class="formula"><math') == source.count("$$") // 2 > 5 and "formulanumber" not in page
    assert "$$" not in re.sub(r"<(?:code|pre)\b.*?</(?:code|pre)>", "", page, flags=re.DOTALL)


def test_the_reference_has_the_docstrings(site):
    page = (site / "reference.html").read_text("utf-8")
    for name in ("Problem", "predict", "train", "compare", "two_layer", "reproduce"):
        assert re.search(rf'id="lazyrich\.[\w.]*{name}"', page), name
