"""Has kernel modules built for all nodes of a kind by two of them: the others are handed what both came to.

In rounds: every kind has its turn with the next node that could build. What fails is tried on another node, and what
nobody provides, each node builds for itself, as it does without any of this. A node whose turn it is, is staged as it
would be anyway, so nothing is lost when this is killed: the next run takes up what was staged and what is kept. What
a node gave stays on the controller until the other one has given the same, so neither can copy it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from provision.apply.converge import stage, stage_once
from provision.apply.fleet import run_each
from provision.apply.follow import follow
from provision.apply.model import Assessment, Failure, Note
from provision.apply.supply.kinds import is_to_stage, learns_sources
from provision.declaration.spec.text.excerpt import few
from provision.planning.supply.builds.archive import MAX_BYTES
from provision.planning.supply.builds.assignment import choose_providers, left_alone
from provision.planning.supply.builds.errors import BuildsError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.apply.supply.kinds import Kinds
    from provision.planning.supply.builds.model import BuiltModule, ModuleBuild


@dataclass(frozen=True, slots=True)
class _Provided:
    """What became of a node whose turn it was: its state, the builds that it gave, and why it gave no others."""

    answer: Assessment | Failure
    given: tuple[ModuleBuild, ...] = ()
    problems: Mapping[ModuleBuild, str] = field(default_factory=dict)


def provide_modules(
    context: ApplyContext, kinds: Kinds, observe: Observer, *, parallel: int, cancel: threading.Event
) -> dict[str, Assessment | Failure]:
    """Have built what several nodes need, and keep it ready to be handed to them, in the context's ``built``.

    Returns what became of the nodes that were staged for this. ``observe`` is called on this thread only.
    """
    changed = dict[str, Assessment | Failure]()
    if context.shelf is None or context.playbooks.check:
        return changed
    context.shelf.prune(time.time())
    changed |= _learn_sources(context, kinds, observe, parallel=parallel, cancel=cancel)
    for handing in kinds.take_kept(kinds.situation()):
        observe(Note(few(handing.nodes), str(handing)))
    while not cancel.is_set() and (chosen := choose_providers(situation := kinds.situation())):
        for handing in kinds.handings(chosen, situation):
            observe(Note(handing.nodes[0], str(handing)))
        for node, provided in run_each(dict(_turns(context, kinds, chosen)), observe, parallel=parallel, cancel=cancel):
            changed[node] = kinds.answers[node] = provided.answer
            _tell_missing(kinds, node, chosen[node], provided, observe)
        for handing in kinds.take_kept(situation):
            observe(Note(handing.nodes[0], _gain(kinds, context.built[handing.build])))
    if not cancel.is_set():
        for text in describe_left_alone(kinds):
            observe(Note("", text))
    return changed


def _learn_sources(
    context: ApplyContext, kinds: Kinds, observe: Observer, *, parallel: int, cancel: threading.Event
) -> dict[str, Assessment | Failure]:
    """Write the package sources of nodes that lack them: only then is it known which of them are of one kind."""
    todo = {
        node: partial(stage_once, context, node, answer)
        for node, answer in kinds.answers.items()
        if node in kinds.staging and isinstance(answer, Assessment) and learns_sources(context, answer)
    }
    if len(todo) <= 1:
        return {}
    learned = dict(run_each(todo, observe, parallel=parallel, cancel=cancel))
    kinds.answers |= learned
    return learned


def _tell_missing(
    kinds: Kinds, node: str, builds: tuple[ModuleBuild, ...], provided: _Provided, observe: Observer
) -> None:
    """Note what a node did not give."""
    failure = provided.answer.message if isinstance(provided.answer, Failure) else ""
    for build in builds:
        if build not in provided.given:
            kinds.tried[build] = kinds.tried.get(build, frozenset()) | {node}
            why = failure or provided.problems.get(build, "it was canceled")
            observe(Note(node, f"the others do not get its {build}: {why}"))


def _gain(kinds: Kinds, module: BuiltModule) -> str:
    """Say what is handed on, by whose word, and what that saves."""
    others = len(kinds.situation().receivers(module.build, *module.nodes))
    to = "1 other" if others == 1 else f"{others} others"
    by = "its" if len(module.nodes) == 1 else f"built alike by {few(module.nodes)}, the"
    size = f"{module.size_bytes / 1e6:.1f} MB"
    return f"{by} {module.build} goes to {to}: {size}{_cost(kinds, module, others)}"


def _cost(kinds: Kinds, module: BuiltModule, others: int) -> str:
    """Return what building took of a node's processors, empty where it had the modules already."""
    answer = kinds.answers.get(module.nodes[0])
    driver = answer.plan.roles.driver if isinstance(answer, Assessment) else None
    if not isinstance(answer, Assessment) or driver is None:
        return ""
    found = [each.cost for each in answer.facts.driver.staged if each.id == driver.driver_change_id]
    if not found or not found[0].build_s:
        return ""
    times = "once" if len(module.nodes) == 1 else "twice"
    return f", {found[0].cpu_s:.0f} s of CPU {times} instead of {others + len(module.nodes)} times"


def describe_left_alone(kinds: Kinds) -> Iterator[str]:
    """Say who builds for itself although it should not have to, and why."""
    situation = kinds.situation()
    for build, nodes in left_alone(situation).items():
        others = [node for node in nodes if node != build.builder]
        if difference := situation.standing(build).difference:
            why = str(difference)
        elif tried := kinds.tried.get(build):
            why = f"{few(sorted(tried))} did not provide it"
        elif build.builder and others:
            why = f"the declared builder {build.builder} is not among these nodes, or not of their kind"
        elif not build.builder and len(others) > build.answers:
            why = "no two of them are known to be different machines"
        else:
            continue
        if others:
            yield f"{few(others)}: to build {build} for itself, since {why}"


def _turns(
    context: ApplyContext, kinds: Kinds, chosen: Mapping[str, tuple[ModuleBuild, ...]]
) -> Iterator[tuple[str, Callable[[Observer, threading.Event], _Provided]]]:
    for node, builds in chosen.items():
        answer = kinds.answers[node]
        if isinstance(answer, Assessment):
            yield node, _Turn(context, node, answer, builds).take


@dataclass(frozen=True, slots=True)
class _Turn:
    """A node's turn: it is staged if it is not, and gives the modules that it has then."""

    context: ApplyContext
    node: str
    assessment: Assessment
    builds: tuple[ModuleBuild, ...]

    def take(self, observe: Observer, cancel: threading.Event) -> _Provided:
        """Return what became of it; whatever goes wrong on the node is in the result."""
        answer: Assessment | Failure = self.assessment
        if is_to_stage(self.assessment):
            answer = stage(self.context, self.node, self.assessment, observe, cancel)
        given, problems = [], {}
        for build in self.builds if isinstance(answer, Assessment) else ():
            if problem := self._get(build, observe, cancel):
                problems[build] = problem
            else:
                given.append(build)
        return _Provided(answer, tuple(given), problems)

    def _get(self, build: ModuleBuild, observe: Observer, cancel: threading.Event) -> str:
        """Get one archive from the node and keep it, or return why that cannot be."""
        shelf, playbooks = self.context.shelf, self.context.playbooks
        if shelf is None:
            return "there is no place to keep it"
        try:
            with shelf.partial_folder() as folder:
                given = folder / "given"
                request = playbooks.built_module(self.node, build, given, MAX_BYTES)
                followed = follow(self.context.runner, request, observe, cancel)
                if followed.failure:
                    return followed.failure.message
                shelf.keep(build, self.node, given, self.context.machine(self.node, self.assessment.facts))
                return ""
        except BuildsError as error:
            return error.message
