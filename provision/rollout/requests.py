"""Decides what becomes of a node that a person wants skipped, tried again, or taken over. Pure.

A change is of the node's record, its cordon and its skip label: an engine at work meets it as any change by others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from provision.rollout.model import BEFORE_SWAP, UNTOUCHED, ChangeKind, Phase

if TYPE_CHECKING:
    from provision.rollout.model import NodeView, Record

_PHASES: Final = list(Phase)
_BEFORE_RELEASE: Final = _PHASES[: _PHASES.index(Phase.RELEASE)]  # the node daemon offers the GPUs as ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A node as it is when something is asked of it; ``unread`` says why its record cannot be read."""

    view: NodeView
    unread: str = ""

    @property
    def is_over(self) -> bool:
        """Whether no upgrade has the node out of service."""
        record = self.view.record
        return not self.unread and (record is None or (record.phase.is_over and record.phase is not Phase.FAILED))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """What is to be different: ``record`` (None: forget it) if ``writes_record``, the others unless they are None."""

    writes_record: bool = False
    record: Record | None = None
    cordoned: bool | None = None
    skipped: bool | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is changed, as a plan shows it: an action, and what it is about."""

    action: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """What is changed, if anything, and what the person is told; ``is_refused``: it makes no sense for this node.

    ``steps`` are what the change comes to where the node's state lives.
    """

    change: RecordChange | None = None
    words: tuple[str, ...] = ()
    is_refused: bool = False
    steps: tuple[Step, ...] = ()


Decide = Callable[[Found], RequestResult]


def skip(found: Found) -> RequestResult:
    """Keep upgrades from beginning on a node."""
    name, record = found.view.name, found.view.record
    if found.view.is_skipped:
        return RequestResult(words=("was skipped already",))
    words = f"is skipped: no upgrade begins on it until `grapnel skip --undo {name}`"
    if record is None or record.phase.is_over:
        return RequestResult(change=RecordChange(skipped=True), words=(words,))
    under_way = f"it is in {record.phase}, and that upgrade is finished first; `grapnel abandon {name}` ends it here"
    if record.phase in BEFORE_SWAP:
        how = "as it is" if record.phase in UNTOUCHED and not record.is_touched else "with what it has, once verified"
        who = "whoever is at work puts it back into service, or else the next run does"
        under_way = f"it is in {record.phase}, before its driver is changed: {who}, {how}"
    return RequestResult(change=RecordChange(skipped=True), words=(words, under_way))


def unskip(found: Found) -> RequestResult:
    """Let upgrades begin on a node again."""
    if not found.view.is_skipped:
        return RequestResult(words=("was not skipped",))
    words = "is no longer skipped: its turn comes in an upgrade that runs, or with the next one"
    return RequestResult(change=RecordChange(skipped=False), words=(words,))


def retry(found: Found, engine: str, controller: str = "") -> RequestResult:
    """Have a failed node tried again.

    ``engine`` is who is at work, ``controller`` who leads the controller; each is empty where none does.
    """
    view, record = found.view, found.view.record
    if found.unread:
        return RequestResult(words=(f"cannot be tried again: {found.unread}",), is_refused=True)
    if record is not None and record.back_for and record.phase.is_over:
        kept = RecordChange(writes_record=True, record=replace(record, back_for="", retry=record.has_failed))
        instead = ", and is tried again instead" if record.has_failed else ""
        words = f"does not go back to its former driver, as {record.back_for} had asked{instead}"
        return RequestResult(change=kept, words=(words,))
    if record is None or record.phase is Phase.DONE or not record.phase.is_over:
        state = "no upgrade of it is recorded" if record is None else f"its upgrade is in {record.phase}"
        if record is not None and record.phase is Phase.DONE:
            state = "its upgrade is done"
        return RequestResult(words=(f"has not failed: {state}",), is_refused=True)
    if view.is_skipped:
        hint = f"`grapnel skip --undo {view.name}` first"
        return RequestResult(words=(f"is skipped, so that nothing would try it again: {hint}",), is_refused=True)
    if not engine and not controller:
        return RequestResult(
            words=("is tried again by the next `grapnel apply`, before all others: nobody is at work now",)
        )
    words = f"is tried again by {_who_tries(engine, controller)} as soon as nothing else is in its way"
    change = None if record.retry else RecordChange(writes_record=True, record=replace(record, retry=True))
    return RequestResult(change=change, words=(words,))


def send_back(found: Found, who: str, controller: str) -> RequestResult:
    """Have the ``controller`` return a node to its former driver, and leave it so; ``who`` wants that."""
    view, record = found.view, found.view.record
    refusal = _why_not_back(found)
    if refusal or record is None:
        return RequestResult(words=(refusal,), is_refused=True)
    keeps_driver = record.kind is not ChangeKind.DRIVER
    if record.phase is Phase.RETURNED and not keeps_driver:
        return RequestResult(words=(f"has its former driver already ({record.origin or 'none'})",))
    if record.back_for:
        return RequestResult(words=(f"is to go back already: {record.back_for} asked for it",))
    is_known = record.before_upgrade != record.target if keeps_driver else record.phase is Phase.DONE
    before = f" ({record.before_upgrade or 'none'})" if is_known else ""  # else it may have it by now
    words = (
        f"is taken out of service and returned to the driver before{before} by the controller ({controller}): "
        f"`grapnel status {view.name}` shows how far it is"
    )
    then = f"is left so until `grapnel retry {view.name}`, or another declaration in its GpuStack"
    return RequestResult(
        change=RecordChange(writes_record=True, record=replace(record, back_for=who)), words=(words, then)
    )


def _why_not_back(found: Found) -> str:
    """Return why nothing leads back on a node, or not now."""
    view, record = found.view, found.view.record
    if found.unread:
        return f"cannot be returned: {found.unread}"
    if record is None:
        return "has nothing to go back to: no upgrade of it is recorded"
    if not record.phase.is_over:
        return f"is in {record.phase}: that ends first, or change its GpuStack; then ask again"
    if view.is_skipped:
        return f"is skipped, so that nothing begins on it: `grapnel skip --undo {view.name}` first"
    return ""


def _who_tries(engine: str, controller: str) -> str:
    """Return who tries a node again; an engine at a terminal may be about other nodes."""
    if engine in ("", controller):
        return f"the controller ({controller}),"
    return f"{engine}, or by the controller after that," if controller else f"{engine},"


def abandon(found: Found) -> RequestResult:
    """Take a node out of its upgrade and leave it to a person as it stands; what that means is told."""
    view, record = found.view, found.view.record
    if found.is_over and view.is_skipped:
        return RequestResult(words=("is in no upgrade, and none begins on it",))
    if found.is_over:
        hint = f"`grapnel skip {view.name}` keeps upgrades from beginning on it"
        return RequestResult(words=(f"has no upgrade to be taken out of: {hint}",), is_refused=True)
    where = "" if record is None else f" in {record.failed_in or record.phase}"
    until = f"none begins on it until `grapnel skip --undo {view.name}`"
    words = (f"is yours: its upgrade ended{where} and is forgotten, and {until}", *_left_behind(record, view))
    return RequestResult(change=RecordChange(writes_record=True, record=None, skipped=True), words=words)


def uncordon(found: Found) -> RequestResult:
    """Let an abandoned node take pods again, unless an upgrade has it by now."""
    name, record = found.view.name, found.view.record
    if record is not None and not record.phase.is_over:
        return RequestResult(words=(f"is in an upgrade again ({record.phase}): it stays cordoned",), is_refused=True)
    if not found.view.is_cordoned:
        return RequestResult(words=("takes pods",))
    words = f"takes pods again; upgrades leave it alone until `grapnel skip --undo {name}`"
    return RequestResult(change=RecordChange(cordoned=False), words=(words,))


def _left_behind(record: Record | None, view: NodeView) -> list[str]:
    """Return what a person has to know of a node that is theirs now."""
    words = []
    phase = None if record is None else record.failed_in or record.phase
    if record is not None and not record.phase.is_over and phase not in (Phase.CORDON, Phase.DRAIN):
        words.append(f"a step that has begun on it goes on to its end, and nothing follows: it was in {phase}")
    if phase not in _BEFORE_RELEASE:
        words.append("its GPUs may be out of service, and its driver was not verified since it was changed")
    if view.is_cordoned:
        before = ", as it was before the upgrade" if record is not None and record.was_cordoned else ""
        words.append(f"it stays cordoned{before}, and counts as unavailable")
    return words
