"""Renders the JSON schema of a fleet to simulate; `python -m provision.rollout.simulate.fleet_schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import msgspec

from provision.rollout.simulate.fleet_model import API_VERSION, SimulatedFleet

DECLARATION: Final = f"https://{API_VERSION}/gpustack.schema.json"


def render_schema() -> str:
    """Return the schema as text, as it is committed."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/simulated-fleet.schema.json",
        **msgspec.json.schema(SimulatedFleet),
    }
    parts: dict[str, Any] = schema["$defs"]
    fields = parts["FleetSpec"]["properties"]
    fields["rollout"] = {"description": fields["rollout"]["description"], "$ref": f"{DECLARATION}#/$defs/Rollout"}
    schema["$defs"] = {name: parts[name] for name in _reached("SimulatedFleet", parts)}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _reached(name: str, parts: dict[str, Any]) -> list[str]:
    """Return the definitions that one needs, and itself, by name."""
    found, pending = {name}, [name]
    while pending:
        text = json.dumps(parts[pending.pop()])
        new = {other for other in parts if f'"#/$defs/{other}"' in text} - found
        found |= new
        pending += new
    return sorted(found)


if __name__ == "__main__":
    sys.stdout.write(render_schema())
