"""Renders the JSON schema of a fleet to simulate; `python -m provision.simulate.fleet_schema` prints it."""

from __future__ import annotations

import json
import sys

import msgspec

from provision.simulate.fleet_model import API_VERSION, SimulatedFleet


def render_schema() -> str:
    """Return the schema as text, as it is committed."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/simulated-fleet.schema.json",
        **msgspec.json.schema(SimulatedFleet),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_schema())
