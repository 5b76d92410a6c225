"""Knows k0s: its containerd imports a folder of drop-ins, since 1.27."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine
from provision.planning.engines.files.engine_file import shown
from provision.planning.engines.files.present import text_of
from provision.planning.engines.kubernetes.distribution import DROP_IN, Distribution, Way, require_text, written_by
from provision.planning.engines.kubernetes.handler import Written, imports_of
from provision.planning.engines.model import KnownEngine
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

_FOLDER: Final = "/etc/k0s/containerd.d"
_MERGED: Final = "/run/k0s/containerd-cri.toml"  # of k0s before 1.36
_MARK: Final = "# k0s_managed=true"


def _find_way(_: NodeFacts, name: str, config: str) -> Way:
    return Way(name, config, f"{_FOLDER}/{DROP_IN}", is_template=False)


def _read(facts: NodeFacts, way: Way) -> Written:
    _require_taken_in(way.config, require_text(facts, way, way.config))
    written = written_by(facts, way)
    merged = text_of(facts, _MERGED) if _MERGED in imports_of(written.path, written.text) else None
    return written if merged is None else replace(written, others=(*written.others, (_MERGED, merged)))


def _require_taken_in(config: str, text: str) -> None:
    """Refuse a file that k0s leaves to people and that does not take our drop-in in."""
    if text.startswith(_MARK) or f"{_FOLDER}/*.toml" in imports_of(config, text):
        return
    raise EngineConfigError(
        f"{shown(config)} is not managed by k0s, so files of {_FOLDER} have no effect",
        hint=f'import them: imports = ["{_FOLDER}/*.toml"]; or take the file away and restart k0s, which writes it',
    )


_DISTRIBUTION: Final = Distribution(
    Engine.K0S, ("k0sworker.service", "k0scontroller.service"), find_way=_find_way, read=_read
)
K0S: Final = KnownEngine(_DISTRIBUTION.on_node, toolkit_paths=("/var/lib/k0s", "/etc/k0s", "/run/k0s"))
