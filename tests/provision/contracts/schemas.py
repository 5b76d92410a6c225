"""The JSON schemas of the contracts that are generated from types, and the command that writes them.

``python tests/provision/contracts/schemas.py`` after a change of the types; the tests compare.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from provision.cluster.pause import PauseDocument
from provision.cluster.progress import ProgressDocument
from provision.cluster.record import RecordDocument
from provision.controller.jobs.wire import JobRequest
from provision.declaration.fleet.facts.node import NodeFacts
from provision.planning.driver_change import DriverChange
from provision.planning.node_plan import NodePlan
from provision.planning.render.declared import DeclaredRecord
from provision.planning.supply.bundle.model import BundleList
from provision.planning.supply.payload.store import Manifest
from provision.report.documents.answer import AnswerDocument
from provision.report.documents.drift import DriftDocument
from provision.report.documents.status import StatusDocument
from provision.report.notify.news import Message
from provision.report.planned.removal import RemovalDocument
from provision.report.runs.events import RunEvent
from provision.report.runs.model import RunReport
from provision.report.simulation import SimulationDocument
from provision.rollout.decision.saved_plan import SavedPlan

CONTRACTS = Path(__file__).parents[3] / "docs" / "contracts"
TYPES: dict[str, Any] = {
    "answer": AnswerDocument,
    "bundle": BundleList,
    "declared": DeclaredRecord,
    "drift": DriftDocument,
    "driver-change": DriverChange,
    "node-facts": NodeFacts,
    "node-job": JobRequest,
    "node-plan": NodePlan,
    "node-state": RecordDocument,
    "pause": PauseDocument,
    "payload": Manifest,
    "removal": RemovalDocument,
    "rollout-notification": Message,
    "rollout-progress": ProgressDocument,
    "run-event": RunEvent,
    "run-report": RunReport,
    "saved-plan": SavedPlan,
    "simulation": SimulationDocument,
    "status": StatusDocument,
}
LINES = {"run-event"}  # a document is many lines, of which the first says the schema
STRICT = {"driver-change"}  # every key is there, and no other: the name of a document is its digest


def render_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a contract; its samples say which schema they follow, so that is required."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | msgspec.json.schema(TYPES[name])
    top = schema["$defs"]["Began" if name in LINES else TYPES[name].__name__]
    top["required"] = sorted({*top["required"], "schema"})
    if name in STRICT:
        for each in schema["$defs"].values():
            each["required"] = sorted(each["properties"])
            each["additionalProperties"] = False
    plain: dict[str, Any] = json.loads(json.dumps(schema))
    return plain


def write_schemas() -> None:
    """Write ``schema.json`` of every generated contract."""
    for name in TYPES:
        text = json.dumps(render_schema(name), indent=2, ensure_ascii=False) + "\n"
        CONTRACTS.joinpath(name, "schema.json").write_text(text)


if __name__ == "__main__":
    write_schemas()
