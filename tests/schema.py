"""Holds documents against a JSON schema, which is itself checked once: that takes longer than all documents."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import jsonschema

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_schema(document: object, schema: Mapping[str, Any]) -> None:
    """Raise jsonschema.ValidationError where a document does not follow a schema."""
    _validator(json.dumps(schema)).validate(document)


@cache
def _validator(text: str) -> jsonschema.protocols.Validator:
    schema = json.loads(text)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)
