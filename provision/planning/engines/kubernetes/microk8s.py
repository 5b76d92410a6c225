"""Knows microk8s: its containerd's configuration is written from a template of the snap's, which has variables."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine
from provision.planning.engines.files.mark import without_block
from provision.planning.engines.kubernetes.distribution import Distribution, Way, require_text
from provision.planning.engines.kubernetes.handler import Written
from provision.planning.engines.model import KnownEngine

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

_VARIABLES: Final = {"${RUNTIME}": "runc", "${RUNTIME_TYPE}": "io.containerd.runc.v2"}  # where cgroup v2 is


def _find_way(_: NodeFacts, name: str, config: str) -> Way:
    return Way(name, config, f"{posixpath.dirname(config)}/containerd-template.toml", is_template=True)


def _read(facts: NodeFacts, way: Way) -> Written:
    return Written(way.path, _plain_variables(without_block(require_text(facts, way, way.path))))


def _plain_variables(text: str) -> str:
    """Return a template with its variables replaced, as far as they decide about runtimes."""
    for name, value in _VARIABLES.items():
        text = text.replace(f'"{name}"', f'"{value}"')
    return text


_DISTRIBUTION: Final = Distribution(
    Engine.MICROK8S,
    ("snap.microk8s.daemon-containerd.service",),
    find_way=_find_way,
    read=_read,
    templates=lambda _, way: (way.path,),
)
MICROK8S: Final = KnownEngine(_DISTRIBUTION.on_node, toolkit_paths=("/var/snap/microk8s",))
