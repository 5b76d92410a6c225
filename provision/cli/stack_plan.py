"""Carries out `grapnel plan` of GpuStacks: shows what the controller would do about the nodes of a cluster.

Everything is read from the API server, and nothing is asked of a node or changed, so that it takes no more than the
permissions to look.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.cli.options import DECLARATION, inventories_of
from provision.errors import ExitCode, GrapnelError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from provision.cluster.api import Api
    from provision.cluster.objects import Node
    from provision.controller.nodes import SeenNode
    from provision.controller.outlook import Moment, Outlook
    from provision.rollout.status.model import Tenant
    from provision.stacks.differences import Difference
    from provision.stacks.follower import Followed
    from provision.stacks.membership import Membership
    from provision.stacks.model import Stack, Unreadable
    from provision.stacks.status import StackStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """What the controller would do for one stack.

    ``stack`` is what is declared, ``status`` what the controller said last. With a file, ``is_new`` says that the
    cluster has no such stack, ``changes`` in which keys it has another declaration, ``joining`` and ``leaving`` which
    Nodes its selector gains and loses. ``disputed`` are Nodes that another stack selects as well.
    """

    stack: Stack | Unreadable
    status: StackStatus
    is_of_a_file: bool = False
    is_new: bool = False
    changes: tuple[Difference, ...] = ()
    joining: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outlook: Outlook | None = None
    is_guessed: bool = False

    @property
    def is_change(self) -> bool:
        """Whether the controller has something to do."""
        if self.is_new or self.changes or self.joining or self.leaving:
            return True
        return self.outlook is not None and any(node.comes.value in _TODO for node in self.outlook.nodes)


_TODO = frozenset({"due", "being changed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What the controller would do in a cluster: ``tenant`` is who has its lease, ``complaints`` what was not read."""

    place: str
    stacks: tuple[StackPlan, ...]
    tenant: Tenant | None = None
    pause: str = ""
    complaints: tuple[str, ...] = ()


def wants(args: argparse.Namespace) -> bool:
    """Tell whether a plan of GpuStacks is meant: a file with a nodeSelector, or no file and no inventory."""
    from provision.stacks.file import read_stack_file  # noqa: PLC0415 - start-up time

    if args.file.exists() or args.file != DECLARATION:
        return read_stack_file(args.file) is not None
    return not args.limit and not args.no_cluster and not inventories_of(args)


def run(args: argparse.Namespace) -> int:
    """Read the cluster and show what its controller would do."""
    from provision.cli.stack_plan_words import render_cluster_plan, stack_plan_document  # noqa: PLC0415 - start-up time
    from provision.cli.terminal import print_findings  # noqa: PLC0415 - start-up time
    from provision.cluster.connect import open_api  # noqa: PLC0415 - start-up time
    from provision.report import make_console, show  # noqa: PLC0415 - start-up time
    from provision.stacks.file import judge_stack, read_stack_file  # noqa: PLC0415 - start-up time

    require_no_inventory(args)
    declared = None
    if args.file.exists() or args.file != DECLARATION:
        document = read_stack_file(args.file)
        assert document is not None  # noqa: S101 - `wants` has told
        declared, warnings = judge_stack(document)
        print_findings(warnings)
    api = open_api(args.kubeconfig, args.context, os.environ)
    if api is None:
        if declared is None:
            raise GrapnelError(
                f"{args.file} does not exist, and there is neither an inventory nor a kubeconfig",
                hint=f"`grapnel init {args.file}` writes a declaration; add `--kubeconfig` for the GpuStacks of a cluster",
            )
        raise GrapnelError(
            f"{args.file} is a GpuStack of a cluster, and there is no kubeconfig", hint="add `--kubeconfig`"
        )
    plan = plan_cluster(api, declared)
    if args.json:
        print(stack_plan_document(plan))
    else:
        show(make_console(sys.stdout), render_cluster_plan(plan, "" if declared is None else str(args.file)))
    return exit_code(plan, tell_changes=args.exit_code)


def require_no_inventory(args: argparse.Namespace) -> None:
    """Refuse options that are about machines of an inventory. Raises UsageError."""
    given = [option for option, value in (("--inventory", args.inventory), ("--limit", args.limit)) if value]
    given += [f"--{name}" for name in ("diff", "force", "bundle", "no_cluster") if getattr(args, name, None)]
    if given:
        raise UsageError(
            f"{given[0].replace('_', '-')} is about machines of an inventory, and a GpuStack of a cluster has none",
            hint="leave it out; without nodeSelector the file is a declaration for an inventory",
        )


def exit_code(plan: ClusterPlan, *, tell_changes: bool) -> int:
    """Return 1 where a stack is refused or nodes cannot get on, 3 where something is to do and that is asked for."""
    from provision.controller.outlook import Comes  # noqa: PLC0415 - start-up time
    from provision.stacks.model import Unreadable  # noqa: PLC0415 - start-up time

    bad = (Comes.LEFT_FAILED, Comes.UNCLEAR)
    for one in plan.stacks:
        stuck = one.outlook is not None and any(node.comes in bad for node in one.outlook.nodes)
        if isinstance(one.stack, Unreadable) or one.disputed or stuck:
            return ExitCode.FAILED
    return ExitCode.CHANGES if tell_changes and any(one.is_change for one in plan.stacks) else ExitCode.DONE


def plan_cluster(api: Api, declared: Stack | None) -> ClusterPlan:
    """Return what the controller would do about every stack; about ``declared`` alone, as if it were applied."""
    from provision.cluster.informer import NODES  # noqa: PLC0415 - start-up time
    from provision.cluster.objects import Node  # noqa: PLC0415 - start-up time
    from provision.cluster.reader import KubernetesReader  # noqa: PLC0415 - start-up time
    from provision.stacks.reader import read_stacks  # noqa: PLC0415 - start-up time

    followed = read_stacks(api)
    if followed is None:
        raise GrapnelError(
            f"{api.name} does not know GpuStacks", hint="kubectl apply -f deploy/crd/gpustacks.yaml, or install the chart"
        )
    seen = KubernetesReader(api, (), {}).look()
    nodes = api.list_all(NODES, Node)
    from provision.controller.outlook import Moment  # noqa: PLC0415 - start-up time

    moment = Moment(now=seen.time, standing=seen.standing, pause=seen.pause)
    return ClusterPlan(
        place=api.name,
        stacks=_Planning(followed, nodes, moment, api.name).plans(declared),
        tenant=seen.tenant,
        pause="" if seen.pause is None else str(seen.pause),
        complaints=seen.complaints,
    )


class _Planning:
    """Plans the stacks of one look at a cluster."""

    def __init__(self, followed: Mapping[str, Followed], nodes: list[Node], moment: Moment, place: str) -> None:
        from provision.cluster.kubernetes_cluster import view_of  # noqa: PLC0415 - start-up time
        from provision.controller.nodes import see  # noqa: PLC0415 - start-up time

        self._followed, self._moment = followed, moment
        self._nodes: dict[str, SeenNode] = {node.metadata.name: see(node) for node in nodes}
        self._views = {node.metadata.name: view_of(node.metadata.name, node, place) for node in nodes}

    def plans(self, declared: Stack | None) -> tuple[StackPlan, ...]:
        from provision.stacks.model import Stack  # noqa: PLC0415 - start-up time
        from provision.stacks.status import StackStatus  # noqa: PLC0415 - start-up time

        stacks = {name: each.stack for name, each in self._followed.items() if isinstance(each.stack, Stack)}
        before = self._members(stacks)
        if declared is not None:
            after = self._members({**stacks, declared.name: declared})
            former = self._followed.get(declared.name)
            status = StackStatus() if former is None else former.status
            return (self._plan(declared, status, after, before=before, former=former),)
        return tuple(
            self._plan(each.stack, each.status, before) for _name, each in sorted(self._followed.items())
        )

    def _members(self, stacks: Mapping[str, Stack]) -> Membership:
        from provision.stacks.membership import members  # noqa: PLC0415 - start-up time

        return members(stacks.values(), {name: node.labels for name, node in self._nodes.items()})

    def _plan(
        self,
        stack: Stack | Unreadable,
        status: StackStatus,
        membership: Membership,
        *,
        before: Membership | None = None,
        former: Followed | None = None,
    ) -> StackPlan:
        from dataclasses import replace  # noqa: PLC0415 - start-up time

        from provision.controller.outlook import outlook_of  # noqa: PLC0415 - start-up time
        from provision.stacks.differences import differences_of  # noqa: PLC0415 - start-up time
        from provision.stacks.model import Stack  # noqa: PLC0415 - start-up time

        if not isinstance(stack, Stack) or stack.is_going:
            return StackPlan(stack=stack, status=status)
        own = membership.owned.get(stack.name, frozenset())
        then = frozenset() if before is None else before.owned.get(stack.name, frozenset())
        others = {node: tuple(each for each in membership.disputed[node] if each != stack.name)
                  for node in membership.claimed_twice(stack.name)}
        told = former.stack if former is not None else None
        fingerprint, is_guessed = self._fingerprint(stack, status, None if before is None else told)
        moment = replace(self._moment, told={each.node: each.message for each in status.troubles})
        return StackPlan(
            stack=stack,
            status=status,
            is_of_a_file=before is not None,
            is_new=before is not None and former is None,
            changes=differences_of(told.spec, stack.spec) if isinstance(told, Stack) else (),
            joining=tuple(sorted(own - then)) if former is not None else (),
            leaving=tuple(sorted(then - own)) if former is not None else (),
            disputed=others,
            outlook=outlook_of(
                stack.spec,
                fingerprint,
                {name: self._nodes[name] for name in own},
                {name: self._views[name] for name in own},
                moment,
            ),
            is_guessed=is_guessed,
        )
