"""Defines gates of a rollout that a monitoring system keeps: parts of the section `rollout`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import FolderPath, GateName, PrometheusUrl, Promql


class Expect(Enum):
    """What a query has to return for its gate to be open."""

    NOTHING = "nothing"
    SOMETHING = "something"


class Holds(Enum):
    """What waits for a gate."""

    NODES = "nodes"
    WAVES = "waves"


class QueryGate(Section, frozen=True, kw_only=True):
    """A query to Prometheus, or to whatever has its HTTP API, that decides whether a rollout goes on."""

    name: Annotated[GateName, doc("What messages call it.")]
    prometheus: Annotated[
        PrometheusUrl, doc("Where the machine that runs grapnel reaches it: the part before /api/v1.")
    ]
    query: Annotated[Promql, doc("What is asked, in PromQL.")]
    expect: Annotated[
        Expect, doc("What opens it; nothing: an empty result, as of alerts that do not fire; something: any sample.")
    ] = Expect.NOTHING
    holds: Annotated[
        Holds,
        doc("What waits while it is closed; nodes: each that has yet to begin; waves: each that has yet to begin."),
    ] = Holds.NODES
    token_file: Annotated[
        FolderPath | None,
        doc("File on the machine that runs grapnel with a bearer token; it is read before each query. null: none."),
    ] = None
    ca_file: Annotated[
        FolderPath | None,
        doc("File on the machine that runs grapnel with the certificates to trust; null: those of that machine."),
    ] = None
    timeout_seconds: Annotated[Annotated[int, Meta(ge=1, le=60)], doc("How long an answer may take.")] = 10
