"""A hook of mkdocs: formulas become MathML when the site is built, so that its pages load no script for them."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

# Code is left alone; display formulas are looked for before those in a line.
_PARTS = re.compile(r"(```.*?```|`[^`\n]+`)|\$\$(.+?)\$\$|(?<![\\$\w])\$([^\s$](?:[^$\n]*[^\s$])?)\$(?!\w)", re.DOTALL)
_PLACE = re.compile(r"formulanumber(\d+)x")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Take the formulas out, before Markdown sees their signs."""
    page.formulas = []

    def kept(match: re.Match[str]) -> str:
        code, display, inline = match.groups()
        if code:
            return code
        mathml = convert(display or inline, display="block" if display else "inline")
        page.formulas.append(f'<div class="formula">{mathml}</div>' if display else mathml)
        return f"formulanumber{len(page.formulas) - 1}x"

    return _PARTS.sub(kept, markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Put them back."""
    return _PLACE.sub(lambda match: page.formulas[int(match[1])], content)
