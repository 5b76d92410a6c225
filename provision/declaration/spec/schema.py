"""Renders the JSON schema of GpuStack from the model; `python -m provision.declaration.spec.schema` prints it.

Editors and the custom resource read the committed copy in docs/contracts/gpustack; a test compares the two.
"""

from __future__ import annotations

import json
import sys

import msgspec

from provision.declaration.spec.model import API_VERSION, GpuStack


def render_schema() -> str:
    """Return the schema as text, as it is committed."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/gpustack.schema.json",
        **msgspec.json.schema(GpuStack),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_schema())
