"""From claims to judgements: run their studies on the engine, judge, draw, and write the page as each is finished."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyrich.errors import LazyrichError
from lazyrich.gallery.claim import Claim, Judgement, Source
from lazyrich.gallery.page import gallery_page
from lazyrich.gallery.registry import CLAIMS
from lazyrich.gallery.studies import load_changed
from lazyrich.gallery.work import Work, comparison_of, unpacked
from lazyrich.problem.base import AnyStudy
from lazyrich.problem.diagram import MatrixStudy
from lazyrich.problem.files import Study, TrainedStudy, point_label
from lazyrich.provenance import provenance
from lazyrich.storage import cannot_write, write_whole
from lazyrich.theory.deep_linear.exponent import read_exponent
from lazyrich.trajectory import plain
from lazyrich.transfer.analysis import analyse
from lazyrich.transfer.cluster import Workers
from lazyrich.transfer.diagram import phase_diagram
from lazyrich.transfer.engine import run_cells
from lazyrich.transfer.store import ResultStore
from lazyrich.transfer.sweep import run_sweep

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Finished:
    """A claim that was judged.

    Attributes
    ----------
    claim : Claim
    judgement : Judgement
    seconds : float
        Computing time of its studies, added up over workers, whenever it was spent.
    figure : str
        PNG in base 64.
    """

    claim: Claim
    judgement: Judgement
    seconds: float
    figure: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; infinite thresholds are None."""
        checks = [
            {
                "name": check.number.name,
                "value": plain(check.number.value),
                "interval": [plain(check.number.low), plain(check.number.high)],
                "above": plain(check.above),
                "below": plain(check.below),
                "reason": check.reason,
                "essential": check.essential,
                "outcome": check.outcome,
            }
            for check in self.judgement.checks
        ]
        numbers = [
            {"name": each.name, "value": plain(each.value), "interval": [plain(each.low), plain(each.high)]}
            for each in self.judgement.numbers
        ]
        return {
            "id": self.claim.id,
            "claim": self.claim.statement,
            "studies": [source.name for source in self.claim.sources],
            "verdict": self.judgement.verdict,
            "sentence": self.judgement.sentence,
            "checks": checks,
            "numbers": numbers,
            "seconds": self.seconds,
        }


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """The claims of these names, in the order of the list of all; all of them without names.

    Raises
    ------
    LazyrichError
        For a name that no claim has.
    """
    wanted = [name.upper() for name in names]
    for name, upper in zip(names, wanted, strict=True):
        if upper not in CLAIMS:
            raise LazyrichError(name, "no such claim", "see lazyrich reproduce --list")
    return [claim for name, claim in CLAIMS.items() if not wanted or name in wanted]


def reproduce(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    folder: str | Path = "results/gallery",
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[str], Progress | None] | None = None,
    announce: Callable[[str], object] | None = None,
) -> list[Finished]:
    """Run the studies of claims, judge each, and write ``gallery.html`` and ``gallery.json`` into `folder`.

    Both are written anew as each claim is finished. What was computed before, by this or an earlier run with the same
    code, is not computed again.

    Parameters
    ----------
    names : sequence of str
        Ids of claims; default: all.
    quick : bool
        Smaller networks, fewer of them and coarser grids.
    folder : str or Path
        Where the page and, in ``quick`` or ``full``, every finished cell are kept.
    workers, scheduler, announce
        See :func:`lazyrich.transfer.engine.run_cells`. Local processes are started once, for all studies.
    progress : callable, optional
        Called with a study's name; gives what to call with cells done and cells in all.

    Returns
    -------
    list of Finished

    Raises
    ------
    LazyrichError
        For a claim that does not exist, or a folder that cannot be written.
    """
    claims = chosen_claims(names)
    folder = Path(folder)
    cells = folder / ("quick" if quick else "full")
    try:
        cells.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(cells, error) from None
    finished: list[Finished] = []
    with Workers(workers) as shared:
        for claim in claims:
            results, seconds = {}, 0.0
            for source in claim.sources:
                bar = progress(f"{claim.id} {source.name}") if progress else None
                # one store each, shared by all claims that rest on the study
                place = cells / source.name.replace(".", "-")
                options = {"workers": shared, "scheduler": scheduler, "progress": bar, "announce": announce}
                results[source.name], spent = run_source(source, place, quick, **options)
                seconds += spent
            finished.append(Finished(claim, claim.judge(results), seconds, _picture(claim.draw(results))))
            write_gallery(finished, folder, quick, claims)
    return finished


def run_source(source: Source, folder: Path, quick: bool, **options: Any) -> tuple[Any, float]:
    """Run one study, whatever its kind.

    Returns
    -------
    results : object
        See :class:`lazyrich.gallery.claim.Claim`.
    seconds : float
        Of computing.
    """
    if source.works is not None:
        found = run_cells(source.works(quick), ResultStore(folder, source.name), **options)
        return found, sum(float(each["seconds"]) for each in found)
    study = load_changed(source.name, source.quick if quick else {})
    if isinstance(study, TrainedStudy) and study.transfer is not None:
        sweep = run_sweep(study, folder, name=source.name, **options)
        return analyse(sweep), sum(sweep.seconds.values())
    if isinstance(study, MatrixStudy) and study.diagram is not None:
        diagram = phase_diagram(study, folder, name=source.name, **options)
        return diagram, sum(row["seconds"] for row in diagram.rows)
    labels, works = _works(study)
    found = run_cells(works, ResultStore(folder, source.name), **options)
    seconds = sum(float(each["seconds"]) for each in found)
    if isinstance(study, MatrixStudy):
        return unpacked(found[0]["trajectory"]), seconds
    if works[0].name == "exponent":
        trajectories = [unpacked(each["trajectory"]) for each in found]
        return [(label, read_exponent(each), each) for each, label in zip(trajectories, labels, strict=True)], seconds
    return [comparison_of(each, label) for each, label in zip(found, labels, strict=True)], seconds


def _works(study: AnyStudy) -> tuple[list[str], list[Work]]:
    if isinstance(study, Study):
        points, seeds = study.problems(), study.compare.seeds
        labels = [point_label(point) for point, _ in points]
        if study.training.mode == "flow" and study.training.steps is None:  # nothing to train: it is the exponent's
            return labels, [Work("exponent", {"problem": problem.to_dict()}) for _, problem in points]
        works = [Work("compare", {"problem": problem.to_dict(), "seeds": seeds}) for _, problem in points]
        return labels, works
    return [""], [Work("two-layer", {"problem": study.problem.to_dict()})]


def write_gallery(finished: Sequence[Finished], folder: Path, quick: bool, asked: Sequence[Claim]) -> None:
    """Write the page and its numbers."""
    names = [claim.id for claim in asked] if len(asked) < len(CLAIMS) else []
    command = " ".join(["lazyrich", "reproduce", *names, *(["--quick"] if quick else [])])
    entries = [each.to_json() for each in finished]
    versions = provenance()
    figures = [each.figure for each in finished]
    page = gallery_page(entries, figures, quick=quick, asked=len(asked), command=command, versions=versions)
    write_whole(folder / "gallery.html", page.encode())
    content = {"quick": quick, "claims": entries, "versions": versions}
    write_whole(folder / "gallery.json", f"{json.dumps(content, indent=1, allow_nan=False)}\n".encode())


def _picture(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return base64.b64encode(buffer.getvalue()).decode()
