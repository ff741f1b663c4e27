"""The gallery as one page without external parts."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from lazyrich.transfer.report import STYLE, html_table

_MARKS = {"holds": "✓", "holds with conditions": "◐", "does not hold": "✗", "undecided": "?"}


def gallery_page(
    entries: Sequence[Mapping[str, Any]],
    figures: Sequence[str],
    *,
    quick: bool,
    asked: int,
    command: str,
    versions: Mapping[str, str],
) -> str:
    """A self-contained HTML page.

    Parameters
    ----------
    entries : sequence of dict
        What :meth:`lazyrich.gallery.run.Finished.to_json` gives.
    figures : sequence of str
        PNG files in base 64, one for each entry.
    quick : bool
        Whether sizes were reduced; the page says so.
    asked : int
        How many claims were asked for; the page says if some are not there yet.
    command : str
        How to run it again.
    versions : mapping
        Of the software, and the time.
    """
    scale = "Quick run: networks are smaller, and fewer, than in the full one." if quick else "Full run."
    if len(entries) < asked:
        scale += f" {len(entries)} of {asked} claims are finished; run the command again to continue."
    rows = [["claim", "", "verdict", "time"]]
    rows += [[each["id"], each["claim"], _verdict(each), _duration(each["seconds"])] for each in entries]
    sections = "".join(_section(each, figure) for each, figure in zip(entries, figures, strict=True))
    software = ", ".join(f"{name} {value}" for name, value in versions.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Gallery of claims</title><style>{STYLE}
th, td {{ white-space: normal; vertical-align: top; }} td:not(:first-child), th {{ text-align: left; }}
img {{ max-width: 100%; height: auto; }}
</style></head><body>
<h1>Gallery of claims</h1><p><strong>{html.escape(scale)}</strong> Verdicts are computed from the numbers below each
claim: every threshold has to be outside of the number's 95% interval. A claim that does not hold is a result.</p>
{html_table(rows)}{sections}
<h2>Reproduce</h2><pre>{html.escape(command)}</pre><p>{html.escape(software)}</p></body></html>
"""


def _verdict(entry: Mapping[str, Any]) -> str:
    return f"{_MARKS[entry['verdict']]} {entry['verdict']}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def _section(entry: Mapping[str, Any], figure: str) -> str:
    checks = [["number", "measured (95% interval)", "has to be", "is it", "why this threshold"]]
    for check in entry["checks"]:
        bounds = [f"{side} {check[side]:.3g}" for side in ("above", "below") if check[side] is not None]
        kind = "" if check["essential"] else " (a condition)"
        checks.append([check["name"] + kind, _number(check), " and ".join(bounds), check["outcome"], check["reason"]])
    further = [["number", "measured (95% interval)"], *([each["name"], _number(each)] for each in entry["numbers"])]
    studies = ", ".join(f"studies/{name}" for name in entry["studies"])
    return f"""<h2 id="{entry["id"]}">{entry["id"]}. {html.escape(entry["claim"])}</h2>
<p class="verdict">{html.escape(_verdict(entry))}</p><p>{html.escape(entry["sentence"])}</p>
<img alt="{html.escape(f"Figure of claim {entry['id']}: {entry['sentence']}")}" src="data:image/png;base64,{figure}">
{html_table(checks)}{html_table(further) if entry["numbers"] else ""}
<p>{html.escape(studies)}; {_duration(entry["seconds"])} of computing</p>
"""


def _number(entry: Mapping[str, Any]) -> str:
    value, (low, high) = entry["value"], entry["interval"]
    if value is None:
        return "none"
    if low is None or high is None:
        return f"{value:.3g} (unbounded)"
    return f"{value:.3g}" if low == high == value else f"{value:.3g} ({low:.3g} to {high:.3g})"
