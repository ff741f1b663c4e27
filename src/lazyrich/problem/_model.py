"""The base of all problem tables: strict, frozen, and with errors that name the place and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from lazyrich.errors import LazyrichError

# Names that pydantic puts into an error's location for the branch of a union; they are not keys of the file.
_UNION_TAGS = set(
    [
        "number",
        "list",
        "range",
        "layers",
        "a power",
        "a fraction",
        "gaussian",
        "power-law",
        "spectrum",
        "dataset",
        "teacher",
        "str",
        "int",
        "float",
        "list[str]",
    ]
)

_REMEDIES = {
    "int_type": "give a whole number, without quotes",
    "int_from_float": "give a whole number",
    "float_type": "give a number, without quotes",
    "string_type": "give a text in quotes",
    "bool_type": "give true or false",
    "list_type": "give a list in brackets",
    "finite_number": "give a finite number",
    "greater_than": "choose a larger number",
    "greater_than_equal": "choose a larger number",
    "less_than": "choose a smaller number",
    "less_than_equal": "choose a smaller number",
    "too_short": "give more entries",
}

# What the branches of a union are called in a message.
_FORMS = {
    "number": "one number",
    "list": "a list",
    "range": "{from = .., to = .., count = ..}",
    "layers": "{input = .., block = .., output = ..}",
    "a power": "{exponent = ..}",
    "a fraction": "{relative = ..}",
}


def shown(value: Any) -> str:
    """A value as it may stand in a message: not longer than 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:45]}.. ({len(text)} characters)"


def invalid(what: str, remedy: str, key: str = "") -> PydanticCustomError:
    """An error to raise inside a validator; pydantic knows the place, `key` names the one below it."""
    return PydanticCustomError("invalid", "{what}", {"what": what, "remedy": remedy, "key": key})


class Model(BaseModel):
    """A table of a problem file. Wrong content raises :class:`lazyrich.LazyrichError`, also from Python."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _translate(error, type(self)) from None


def _known_keys(model: type[BaseModel], location: Iterable[Any]) -> list[str]:
    """Keys allowed in the table at `location` below `model`."""
    for part in location:
        field = model.model_fields.get(str(part))
        nested = getattr(field, "annotation", None) if field else None
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            model = nested
    return sorted(model.model_fields)


def _translate(error: ValidationError, model: type[BaseModel]) -> LazyrichError:
    details = error.errors()
    # A misspelt key is often also a missing one: name the spelling first.
    first = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    location = [part for part in first["loc"] if part not in _UNION_TAGS]
    where = ""
    for part in location:
        where += f"[{part}]" if isinstance(part, int) else (f".{part}" if where else str(part))
    context = first.get("ctx", {})
    where = ".".join(part for part in (where, context.get("key")) if part)
    cause = context.get("error")
    if isinstance(cause, LazyrichError):
        return cause.inside(where) if where else cause
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        remedy = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"
        return LazyrichError(where, "unknown key", remedy)
    if first["type"] == "missing":
        return LazyrichError(where, "missing", "add it")
    if first["type"] == "union_tag_not_found":
        return LazyrichError(f"{where}.kind", "missing", "add one of " + context_tags(model, location))
    if first["type"] == "union_tag_invalid" and context.get("tag") in _FORMS:
        expected = context["expected_tags"].replace("'", "")
        forms = [_FORMS[tag] for tag in expected.split(", ")]
        return LazyrichError(where, f"is {_FORMS[context['tag']]}", f"give {' or '.join(forms)}")
    if first["type"] in ("model_type", "dict_type"):
        return LazyrichError(where, "is not a table", "give a table of keys and values")
    if first["type"] == "union_tag_invalid":
        return LazyrichError(
            f"{where}.kind",
            f"unknown kind {shown(context.get('tag'))}",
            f"choose one of {context.get('expected_tags')}",
        )
    if first["type"] == "literal_error":
        return LazyrichError(where, f"{shown(first['input'])} is not known", f"choose {context['expected']}")
    what = context.get("what") or first["msg"][0].lower() + first["msg"][1:]
    given = first["input"]
    if "what" not in context and isinstance(given, int | float | str | bool):
        what += f" (it is {shown(given)})"
    return LazyrichError(where, what, context.get("remedy") or _REMEDIES.get(first["type"], "correct it"))


def context_tags(model: type[BaseModel], location: Iterable[Any]) -> str:
    """The kinds a discriminated field accepts, as text."""
    tags = []
    for part in location:
        field = model.model_fields.get(str(part))
        for variant in getattr(getattr(field, "annotation", None), "__args__", ()):
            tags.extend(variant.model_fields["kind"].annotation.__args__)
    return ", ".join(f"'{tag}'" for tag in tags)
