"""Has kernel modules built once for all nodes of a kind: the first of them builds, the others are handed the result.

In rounds: every kind has its turn with the next node that could build. What fails is tried on another node, and what
nobody provides, each node builds for itself, as it does without any of this. A node whose turn it is, is staged as it
would be anyway, so nothing is lost when this is killed: the next run takes up what was staged and what is kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from provision.apply.converge import stage, stage_once
from provision.apply.fleet import run_each
from provision.apply.follow import follow
from provision.apply.kinds import is_to_stage, learns_sources
from provision.apply.model import Assessment, Failure, Note
from provision.builds.archive import MAX_BYTES
from provision.builds.assignment import choose_providers, left_alone
from provision.builds.errors import BuildsError
from provision.spec.excerpt import few

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.kinds import Kinds
    from provision.apply.model import Observer
    from provision.builds.model import BuiltModule, ModuleBuild


@dataclass(frozen=True, slots=True)
class _Provided:
    """What became of a node whose turn it was: its state, the modules that it gave, and why it gave no others."""

    answer: Assessment | Failure
    modules: tuple[BuiltModule, ...] = ()
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
    for module, handing in kinds.kept(kinds.situation(())):
        context.built[module.build] = module
        observe(Note(module.node, str(handing)))
    while not cancel.is_set() and (chosen := choose_providers(situation := kinds.situation(context.built))):
        turns = {}
        for node, builds in chosen.items():
            answer = kinds.answers[node]
            if isinstance(answer, Assessment):
                turns[node] = _Turn(context, node, answer, builds).take
            for build in builds:
                observe(Note(node, str(kinds.handing(node, build, situation))))
        for node, provided in run_each(turns, observe, parallel=parallel, cancel=cancel):
            changed[node] = kinds.answers[node] = provided.answer
            _take_in(kinds, node, chosen[node], provided, observe)
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


def _take_in(kinds: Kinds, node: str, builds: tuple[ModuleBuild, ...], provided: _Provided, observe: Observer) -> None:
    """Note what a node gave, and what it did not."""
    built = kinds.supply.built
    for module in provided.modules:
        others = len(kinds.situation(()).receivers(module.build, node))
        built[module.build] = module
        size = f"{module.size_bytes / 1e6:.1f} MB"
        to = "1 other" if others == 1 else f"{others} others"
        observe(Note(node, f"its {module.build} goes to {to}: {size}{_cost(provided.answer, others)}"))
    failure = provided.answer.message if isinstance(provided.answer, Failure) else ""
    for build in builds:
        if build not in built:
            kinds.tried[build] = kinds.tried.get(build, frozenset()) | {node}
            why = failure or provided.problems.get(build, "it was canceled")
            observe(Note(node, f"the others do not get its {build}: {why}"))


def _cost(answer: Assessment | Failure, others: int) -> str:
    """Return what building took of the node's processors, empty where it had the modules already."""
    driver = None if isinstance(answer, Failure) else answer.plan.roles.driver
    if isinstance(answer, Failure) or driver is None:
        return ""
    found = [each.cost for each in answer.facts.driver.staged if each.id == driver.driver_change_id]
    return f", {found[0].cpu_s:.0f} s of CPU once instead of {others + 1} times" if found and found[0].build_s else ""


def describe_left_alone(kinds: Kinds) -> Iterator[str]:
    """Say who builds for itself although it should not have to, and why."""
    for build, nodes in left_alone(kinds.situation(kinds.supply.built)).items():
        others = [node for node in nodes if node != build.builder]
        if tried := kinds.tried.get(build):
            why = f"{few(sorted(tried))} did not provide it"
        elif build.builder and others:
            why = f"the declared builder {build.builder} is not among these nodes, or not of their kind"
        else:
            continue
        if others:
            yield f"{few(others)}: to build {build} for itself, since {why}"


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
        modules, problems = [], {}
        for build in self.builds if isinstance(answer, Assessment) else ():
            got = self._get(build, observe, cancel)
            if isinstance(got, str):
                problems[build] = got
            else:
                modules.append(got)
        return _Provided(answer, tuple(modules), problems)

    def _get(self, build: ModuleBuild, observe: Observer, cancel: threading.Event) -> BuiltModule | str:
        """Get one archive from the node and keep it, or return why that cannot be."""
        shelf, playbooks = self.context.shelf, self.context.playbooks
        if shelf is None:
            return "there is no place to keep it"
        try:
            with shelf.partial_folder() as folder:
                given = folder / "given"
                request = playbooks.built_module(self.node, build, given, MAX_BYTES)
                followed = follow(self.context.runner, request, observe, cancel)
                return followed.failure.message if followed.failure else shelf.keep(build, self.node, given)
        except BuildsError as error:
            return error.message
