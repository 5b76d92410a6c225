"""Reads the declaration and merges the inventory's levels into it, for all nodes at once, as `grapnel plan` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.grapnel.node.plugins.plugin_utils.controller import ControllerAction, failure

_MINIMAL = "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\n"


class ActionModule(ControllerAction):
    ARGUMENTS: ClassVar = {"file": {"type": "str", "default": ""}}

    def answer(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the effective declaration of every node, or every finding."""
        sources = list(task_vars.get("ansible_inventory_sources") or [])
        return _read(arguments["file"], sources, Path(self._loader.get_basedir()))


def _read(file: str, sources: list[str], directory: Path) -> dict[str, Any]:
    import msgspec

    from provision.base.errors import GrapnelError
    from provision.declaration.fleet.load import assemble, read_inventory

    try:
        inventory = read_inventory(sources, limit="", directory=directory, environ=os.environ)
        fleet = assemble(_declaration(file), inventory, sources)
    except GrapnelError as error:
        return _with_findings(error)
    stacks = {node.name: msgspec.to_builtins(node.stack) for node in fleet.nodes}
    return {"changed": False, "file": file, "stacks": stacks}


def _declaration(file: str) -> Any:
    """Return what the file says; without one the inventory says it all."""
    from provision.declaration.spec.load import Declaration, load_declaration
    from provision.declaration.spec.model import GpuStack
    from provision.declaration.spec.text.document import read_document
    from provision.declaration.spec.validate import convert

    if file:
        return load_declaration(Path(file))
    document = read_document(_MINIMAL.encode(), "the inventory")
    return Declaration(convert(document.content, GpuStack), document)


def _with_findings(error: Exception) -> dict[str, Any]:
    findings = getattr(error, "findings", ())
    lines = [f"{each.place}: {each.key}: {each.message}{f' ({each.hint})' if each.hint else ''}" for each in findings]
    result = failure(error)
    return {**result, "msg": "\n".join([result["msg"], *lines])}
