"""Plans what GPUs are set to: the file, and the change where a GPU is not as the file has it.

What each GPU can be set to is the business of the program on the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.declaration.spec.text.excerpt import few
from provision.planning.node_plan import Action, FileContent, Item, Problem, Role
from provision.planning.render.gpu_settings import GPU_SETTINGS_PATH, render_gpu_settings

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

_TARGET = "settings of GPUs"


@dataclass(frozen=True)
class GpuSettingsPart:
    """What of the node daemon's part is about settings of GPUs; ``sets``: they are set in this pass."""

    files: tuple[FileContent, ...] = ()
    removals: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()
    warnings: tuple[Problem, ...] = ()
    sets: bool = False


def plan_gpu_settings(facts: NodeFacts, stack: StackSpec) -> GpuSettingsPart:
    """Return what sets the GPUs as declared, and gives back what is declared no more."""
    content = render_gpu_settings(stack)
    if content is None:
        removals = _removals(facts)
        return GpuSettingsPart(removals=removals, sets=bool(removals))
    files = (FileContent(GPU_SETTINGS_PATH, content),)
    if facts.content(GPU_SETTINGS_PATH) != content:
        return GpuSettingsPart(files, sets=True)  # what the GPUs tell is about another file
    items = _differences(facts)
    return GpuSettingsPart(files, items=items, warnings=_warnings(facts), sets=bool(items))


def _removals(facts: NodeFacts) -> tuple[Item, ...]:
    if facts.file(GPU_SETTINGS_PATH) is None:
        return ()
    reason = "node.gpus is not declared any more: the GPUs get their former settings"
    return (Item(role=Role.NODE_DAEMON, action=Action.REMOVE, target=GPU_SETTINGS_PATH, reason=reason),)


def _differences(facts: NodeFacts) -> tuple[Item, ...]:
    told = facts.gpu_settings
    if told is None or not told.changes:
        return ()
    reason = f"not as {GPU_SETTINGS_PATH} has them: {few(list(told.changes))}"
    return (Item(role=Role.NODE_DAEMON, action=Action.SET, target=_TARGET, reason=reason),)


def _warnings(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return what no GPU can be helped to; it keeps nothing else from being done for the node."""
    told = facts.gpu_settings
    if told is None or not (told.refusals or told.error):
        return ()
    why = few(list(told.refusals)) if told.refusals else told.error
    problem = Problem(
        code="gpu-settings",
        message=f"GPUs of {facts.node.hostname} are not as node.gpus has them: {why}",
        hint="give the GPUs an entry of their own, or run `grapnel-node gpu-settings plan` on the node",
    )
    return (problem,)
