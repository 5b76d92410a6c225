"""Plans the files of declared device classes: those that differ are written, those that are declared no more go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DeviceClass
from provision.planning.node_plan import Action, FileContent, Item, Role
from provision.planning.render.device_classes import (
    DECLARED_PATH,
    class_path,
    parse_declared,
    render_declared,
    render_device_classes,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")  # the list is read from a node, which may say anything


def class_files(facts: NodeFacts, stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the files as they are to be. The list comes last; without any class there is none, unless there was."""
    names = tuple(each.name for each in stack.plugin.device_classes if isinstance(each, DeviceClass))
    if not names and facts.file(DECLARED_PATH) is None:
        return ()
    return (*render_device_classes(stack), FileContent(DECLARED_PATH, render_declared(names)))


def plan_removals(facts: NodeFacts, stack: StackSpec) -> tuple[Item, ...]:
    """Return the files to take away: those that an earlier declaration had put there, and this one does not have."""
    wanted = {file.path for file in render_device_classes(stack)}
    before = [class_path(name) for name in parse_declared(facts.content(DECLARED_PATH)) if _NAME.fullmatch(name)]
    return tuple(
        Item(role=Role.NODE_DAEMON, action=Action.REMOVE, target=path, reason=f"{path} is not declared any more")
        for path in before
        if path not in wanted and facts.file(path) is not None
    )
