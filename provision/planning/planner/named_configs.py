"""Plans the files that a label of the Node chooses from: those that differ are written, undeclared ones of ours go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.planning.node_plan import Action, FileContent, Item, Role
from provision.planning.render.device_classes import parse_declared, render_declared
from provision.planning.render.nvidia_config import DECLARED_CONFIGS, named_config_path, render_named_configs

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # the list is a node's: it may say anything


def config_files(facts: NodeFacts, stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the files as they are to be.

    The list comes last; without any configuration there is none, unless there was.
    """
    files = render_named_configs(stack)
    if not files and facts.file(DECLARED_CONFIGS) is None:
        return ()
    return (*files, FileContent(DECLARED_CONFIGS, render_declared(tuple(stack.plugin.configs))))


def plan_config_removals(facts: NodeFacts, stack: StackSpec) -> tuple[Item, ...]:
    """Return the files to take away: those that an earlier declaration had put there, and this one does not have."""
    names = (name for name in parse_declared(facts.content(DECLARED_CONFIGS)) if _NAME.fullmatch(name))
    paths = (named_config_path(name) for name in names if name not in stack.plugin.configs)
    return tuple(
        Item(role=Role.NODE_DAEMON, action=Action.REMOVE, target=path, reason=f"{path} is not declared any more")
        for path in paths
        if facts.file(path) is not None
    )
