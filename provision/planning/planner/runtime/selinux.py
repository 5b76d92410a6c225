"""Plans what SELinux has to be told of GPUs: grapnel's policy module, and labels of device nodes. AppArmor: nothing.

How SELinux stands is a fact of the machine, and no boolean of its policy is changed: what is planned here follows from
the mode that the node is in, and is planned again when somebody has switched it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.text.excerpt import few
from provision.planning.node_plan import Action, FileContent, Item, Problem, Role
from provision.planning.render.selinux import GPU_TYPE, MODULE, MODULE_PATH, names_node, render_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

POLICY_TARGET: Final = f"SELinux module {MODULE}"


def selinux_files(facts: NodeFacts) -> tuple[FileContent, ...]:
    """Return the module's file where the kernel has a policy, or had one when grapnel was applied."""
    is_wanted = _is_on(facts) or facts.file(MODULE_PATH) is not None
    return (FileContent(MODULE_PATH, render_module()),) if is_wanted else ()


def plan_selinux(facts: NodeFacts) -> tuple[Item, ...]:
    """Return what makes the policy take in the module, and labels nodes that have another type."""
    state = facts.selinux
    if state is None or not state.is_on or not state.tools:
        return ()
    digest, items = wanted_digest(facts), []
    if state.module != digest:
        lacks = state.module is None
        reason = (
            f"SELinux is {state.mode}, and its policy keeps containers from GPUs"
            if lacks
            else "the policy has another text of grapnel's module"
        )
        before = None if lacks else (state.module or "unknown")[:12]
        items.append(
            Item(
                role=Role.RUNTIME, action=Action.LOAD, target=POLICY_TARGET, from_=before, to=digest[:12], reason=reason
            )
        )
    others = [path for path, kind in state.nodes.items() if kind != GPU_TYPE and names_node(path)]
    if others:
        reason = f"{few(others)} {'has' if len(others) == 1 else 'have'} the type {state.nodes[others[0]] or 'of none'}"
        items.append(
            Item(
                role=Role.RUNTIME,
                action=Action.SET,
                target="labels of device nodes",
                from_=state.nodes[others[0]] or None,
                to=GPU_TYPE,
                reason=f"{reason}, which containers may not open",
            )
        )
    return tuple(items)


def selinux_problems(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return that the policy cannot be changed: without this, a container's start would show it."""
    state = facts.selinux
    return (_without_tools(facts),) if state is not None and state.mode == "enforcing" and not state.tools else ()


def _without_tools(facts: NodeFacts) -> Problem:
    return Problem(
        code="selinux-tools",
        message=f"{facts.node.hostname} has SELinux, and no semodule and restorecon, by which its policy would let "
        "containers use GPUs",
        hint="install policycoreutils on it, and plan again",
    )


def selinux_warnings(facts: NodeFacts, stack: StackSpec) -> Iterator[Problem]:
    """Yield what is not in the way now: what was switched, what was refused or will be, what enforcing would need."""
    state, node = facts.selinux, facts.node.hostname
    if state is None:
        return
    if state.mode == "permissive" and not state.tools:
        yield _without_tools(facts)
    if not state.is_on and facts.file(MODULE_PATH) is not None:
        yield Problem(
            code="selinux-switched-off",
            message=f"SELinux was on when grapnel was applied to {node}, and is off: new files get no labels",
            hint="before it is switched on again: `fixfiles onboot`, and a reboot; then apply again",
        )
    sharing = (stack.plugin.sharing, *(config.sharing for config in stack.plugin.configs.values()))
    if state.is_on and stack.plugin.enabled and any(each.mps is not None for each in sharing):
        yield Problem(
            code="selinux-mps",
            message=f"SELinux is {state.mode} on {node}, and its policy lets no confined container connect to a "
            "control daemon of MPS",
            hint="declare plugin.sharing.timeSlicing for it, or give these pods securityContext.seLinuxOptions.type: "
            "spc_t, which takes their confinement away",
        )
    if state.denials:
        did = "refused" if state.mode == "enforcing" else "would refuse"
        yield Problem(
            code="selinux-denials",
            message=f"SELinux {did} on {node}: {'; '.join(state.denials)}",
            hint="those of the time before grapnel's module stay in the log; others: docs/security/selinux.md",
        )


def apparmor_warnings(facts: NodeFacts) -> Iterator[Problem]:
    """Yield what AppArmor refused: profiles are the engine's and the node's, and nothing of them is planned."""
    state = facts.apparmor
    if state is not None and state.denials:
        yield Problem(
            code="apparmor-denials",
            message=f"AppArmor refused on {facts.node.hostname}: {'; '.join(state.denials)}",
            hint="what was refused before a profile was changed stays in the log; which rules help: docs/systems.md",
        )


def wanted_digest(facts: NodeFacts) -> str:
    """Return the SHA-256 of the module's text, "" with SELinux off. With it come labels for all that is installed."""
    return hashlib.sha256(render_module().encode()).hexdigest() if _is_on(facts) else ""


def _is_on(facts: NodeFacts) -> bool:
    return facts.selinux is not None and facts.selinux.is_on
