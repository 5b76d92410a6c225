"""Defines what sections of the declaration are made of, and how the limits of their keys are written down."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Meta


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping of the declaration: unknown keys are errors, keys are camelCase in the file.

    `frozen` is repeated in every section for type checkers, `kw_only` because it is not inherited.
    """


def text(pattern: str, expected: str, example: str, *, longest: int | None = None, hides: str | None = None) -> Meta:
    """Return the limits of a text: its pattern, and the same for people as "what it is: how it is written".

    A refused value in which the pattern `hides` is found may be a secret: messages do not repeat it.
    """
    extra = {"expected": expected} if hides is None else {"expected": expected, "hides": hides}
    return Meta(pattern=f"^{pattern}$", max_length=longest, examples=[example], extra=extra)


def doc(description: str, **schema: Any) -> Meta:
    """Return the sentence that documents a key."""
    return Meta(description=description, extra_json_schema=schema or None)
