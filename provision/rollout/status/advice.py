"""Says what follows, and what to type, where a controller brings nodes to their GpuStacks, or is gone.

`python -m provision.rollout.status.advice` prints the table of ``docs/upgrade-incidents.md``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from provision.rollout.model import Phase
from provision.rollout.status.situations import (
    CHANGED_SINCE,
    FAILED,
    FAILED_IN,
    FAILED_INTERFACE,
    FAILED_MIG,
    FAILED_REBOOT,
    LAST_RUN_FAILED,
    LEFT,
    LEFT_CHANGING_OVER,
    LEFT_REBOOTING,
    NO_REPORT,
    NOT_BEGUN,
    PUT_BACK,
    RETURNED,
    RETURNED_INTERFACE,
    SHORT_OF_GPUS,
    SITUATIONS,
    UNRELATED,
)

if TYPE_CHECKING:
    from provision.rollout.status.situations import Situation

_UNTRIED: Final = "it is not tried again by itself while its GpuStack declares the same"
_NOTHING: Final = "nothing by itself"
_RETRY: Final = "`grapnel retry NODE`"
_GOES_ON: Final = "the controller goes on with it, as soon as it can reach it"
_SEE_STACK: Final = (
    "`kubectl describe gpustack` says what the controller waits for. A node that no GpuStack selects any more: select "
    "it, or run `grapnel apply` where its inventory is"
)

# What is otherwise of a node of a GpuStack where a controller leads: what follows, and what to do.
_LED: Final[dict[str, tuple[str, str]]] = {
    **{situation.key: (_GOES_ON, _SEE_STACK) for situation in (*LEFT.values(), LEFT_REBOOTING, LEFT_CHANGING_OVER)},
    FAILED_IN[Phase.CORDON].key: (_UNTRIED, f"correct what the reason names, then {_RETRY}"),
    FAILED_IN[Phase.JOBS].key: (_UNTRIED, f"correct what the reason names, then {_RETRY}"),
    FAILED_IN[Phase.DRAIN].key: (
        _UNTRIED,
        (
            "scale up or correct the budget that the reason names, or raise drainTimeoutMinutes in its GpuStack; then "
            f"{_RETRY}"
        ),
    ),
    FAILED_IN[Phase.RELEASE].key: (_UNTRIED, f"stop what the reason names, then {_RETRY}"),
    FAILED_IN[Phase.SWAP].key: (
        _UNTRIED,
        f"bring the node back; `grapnel-driver status` on it shows each step; then {_RETRY}",
    ),
    FAILED_IN[Phase.VERIFY].key: (
        _UNTRIED,
        f"bring the node back, repair or reboot it; then {_RETRY}, or `grapnel rollback NODE`",
    ),
    FAILED_IN[Phase.RESUME].key: (
        _UNTRIED,
        f"bring the node back; on it: `systemctl status grapnel-node`; then {_RETRY}",
    ),
    FAILED_IN[Phase.ROLLBACK].key: (
        _UNTRIED,
        (
            f"`grapnel-driver status` on the node shows each step; repair or reboot it, then {_RETRY}, or "
            "`grapnel rollback NODE`"
        ),
    ),
    FAILED_REBOOT.key: (
        _UNTRIED,
        f"bring the node back, or repair what the reason names; then {_RETRY}: it is verified, and not rebooted",
    ),
    FAILED_MIG.key: (
        _UNTRIED,
        (
            "on the node: `grapnel-node mig plan`; correct the layout in its GpuStack, or end what is in the way, then "
            f"{_RETRY}"
        ),
    ),
    FAILED_INTERFACE.key: (
        _UNTRIED,
        f"on the node: `grapnel-node offered`, and `journalctl -u grapnel-node`; then {_RETRY}",
    ),
    RETURNED_INTERFACE.key: (
        _UNTRIED,
        f"correct what the reason names, then {_RETRY}; or declare in its GpuStack the interface that it has",
    ),
    FAILED.key: (_UNTRIED, f"correct what the reason names, then {_RETRY}"),
    UNRELATED.key: (_UNTRIED, f"bring the node back, or repair what the reason names; then {_RETRY}"),
    RETURNED.key: (
        _UNTRIED,
        f"correct what the reason names, then {_RETRY}; or declare in its GpuStack the driver that it has",
    ),
    PUT_BACK.key: (_UNTRIED, f"{_RETRY} when they have ended"),
    CHANGED_SINCE.key: ("the controller brings it to its declaration again", "`grapnel plan` shows what differs"),
    NO_REPORT.key: (_NOTHING, "on the node: `journalctl -u grapnel-node`; `grapnel plan` shows what differs"),
    LAST_RUN_FAILED.key: (_NOTHING, "`grapnel report` says what happened; `grapnel plan` shows what differs"),
    SHORT_OF_GPUS.key: (
        f"{_NOTHING}; pods are given the GPUs that are offered",
        "what the reason names, and on the node: `journalctl -u grapnel-node`; `grapnel plan` shows what differs",
    ),
    NOT_BEGUN.key: ("the controller begins with it when the reason is over", "what the reason names"),
}


def led(situation: Situation) -> Situation:
    """Return a situation as it is where a controller leads; most are the same."""
    found = _LED.get(situation.key)
    return situation if found is None else replace(situation, follows=found[0], todo=found[1])


_ABANDONED: Final = (
    "nothing, until a controller leads again, which goes on with it",
    (
        "install it again (`helm install`), or see why it does not run (`kubectl get pods -n grapnel-system`). Without "
        "it, `grapnel abandon NODE --uncordon` puts the node back into service as it stands"
    ),
)
UNLED: Final = tuple(
    replace(each, follows=_ABANDONED[0], todo=_ABANDONED[1])
    for each in (*LEFT.values(), LEFT_REBOOTING, LEFT_CHANGING_OVER)
)


def unled(situation: Situation) -> Situation:
    """Return a situation as it is in a cluster that has GpuStacks and no controller; most are the same."""
    return next((each for each in UNLED if each.key == situation.key), situation)


def render_page() -> str:
    """Return the states as a table in Markdown: what most states in a row have in common stands once, above them."""
    lines = ["| state | what it means | what to do | where a controller leads |", "|---|---|---|---|"]
    for _, found in groupby(SITUATIONS, key=lambda each: led(each).follows):
        group = list(found)
        follows, todo, led_follows, led_todo = (
            _most([each.follows for each in group]),
            _most([each.todo for each in group]),
            _most([led(each).follows for each in group if each.key in _LED]),
            _most([led(each).todo for each in group if each.key in _LED]),
        )
        if follows not in ("", "nothing"):
            above = (f"next: {follows}", "", todo, ": ".join(filter(None, (led_follows, led_todo))))
            lines.append(f"| {' | '.join(each and f'**{each}**' for each in above)} |")
        for each in group:
            means = each.means if each.follows in (follows, "nothing") else f"{each.means}; next: {each.follows}"
            doing = "" if todo and each.todo == todo else each.todo or "nothing"
            led_cell = _of_controller(each, led_follows, led_todo)
            lines.append(f"| **{each.title}** (`{each.key}`) | {means} | {doing} | {led_cell} |")
    return "\n".join(lines) + "\n"


def _most(texts: list[str]) -> str:
    """Return what most of at least two texts are, empty where there is no such text."""
    text, number = Counter(texts).most_common(1)[0] if texts else ("", 0)
    return text if number > 1 and 2 * number >= len(texts) else ""


def _of_controller(situation: Situation, follows: str, todo: str) -> str:
    """Return what is otherwise where a controller leads, without what stands above and what is the same as else."""
    if situation.key not in _LED:
        return ""
    here = led(situation)
    before, then, _ = situation.todo.partition("then ")
    told = here.todo if not then else here.todo.removeprefix(before)
    return ": ".join(part for part, above in ((here.follows, follows), (told, todo)) if part != above)


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_page())
