"""The place where a data file is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn

from lazyrich.errors import LazyrichError
from lazyrich.explorer.uploads import LARGEST_FILE, Uploads

# Of one message; larger files come in several.
CHUNK = 2**20


class _LimitedDropper(pn.widgets.FileDropper):
    """A file dropper that takes no more than it should, whatever the browser sends, and keeps nothing."""

    def __init__(self, whole: Callable[[str, bytes], object], **options: Any) -> None:
        super().__init__(**options)
        self._whole = whole

    def _process_event(self, event: Any) -> None:
        data = event.data
        name = data["name"]
        if event.event_name == "upload_event":
            held = sum(len(part) for parts in self._file_buffer.values() for part in parts)
            if held + len(data["data"]) > LARGEST_FILE + CHUNK:
                self._file_buffer.clear()
                return
            if data["chunk"] != 1 and name not in self._file_buffer:
                return  # the rest of a file that was refused
        super()._process_event(event)
        content = self.value.pop(name, None)
        if content is not None:
            self._whole(name, content.encode() if isinstance(content, str) else content)


def upload_box(uploads: Uploads, taken: Callable[[str], object], failed: Callable[[LazyrichError], object]) -> Any:
    """A box for one file; `taken` gets what stands for it in a link.

    Parameters
    ----------
    uploads : Uploads
    taken, failed : callable
    """

    def whole(name: str, content: bytes) -> None:
        try:
            taken(uploads.add(name, content))
        except LazyrichError as error:
            failed(error)

    return _LimitedDropper(
        whole,
        chunk_size=CHUNK,
        max_file_size=f"{LARGEST_FILE >> 20}MB",
        previews=[],
        sizing_mode="stretch_width",
        height=130,
        margin=(2, 8),
        name=f"CSV, NPZ or Parquet file of up to {LARGEST_FILE >> 20} MB",
    )
