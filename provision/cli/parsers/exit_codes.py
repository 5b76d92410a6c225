"""Says what the exit codes of each verb mean: for help texts, man page and `docs/exit-codes.md`, which tests compare.

The codes themselves are `provision.base.errors.ExitCode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.base.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "an expected failure; the message says what helps",
    ExitCode.CHANGES: "there is something to change",
}
OF_ALL: Final[Mapping[ExitCode, str]] = {
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.BUG: "a bug",
    ExitCode.INTERRUPTED: "interrupted",
}
_CHANGED: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "every node is where it should be, or was skipped on purpose",
    ExitCode.FAILED: "a node is not, or nobody consented",
}
_ASKED: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "noted for every node",
    ExitCode.FAILED: "refused for a node",
}
_WRITTEN: Final[Mapping[ExitCode, str]] = {ExitCode.DONE: "written", ExitCode.FAILED: "not written"}
_NOTED: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "noted, or it was so already",
    ExitCode.FAILED: "it could not be noted",
}
OF_VERBS: Final[Mapping[str, Mapping[ExitCode, str]]] = {
    "init": {
        ExitCode.DONE: "written",
        ExitCode.FAILED: "not written, or a machine did not answer",
    },
    "check": {ExitCode.DONE: "no error; there may be warnings", ExitCode.FAILED: "errors were found"},
    "explain": {
        ExitCode.DONE: "shown",
        ExitCode.FAILED: "there is no such key, pod, node or claim, or it could not be looked at",
    },
    "plan": {
        ExitCode.DONE: "every node has a plan",
        ExitCode.FAILED: "a node has none, or its plan is refused",
        ExitCode.CHANGES: "with --exit-code: every node has a plan, and there is something to change",
    },
    "doctor": {
        ExitCode.DONE: "nothing stands in the way of a driver change",
        ExitCode.FAILED: "something does, or a node could not be looked at",
    },
    "simulate": {
        ExitCode.DONE: "the roll-out comes to its end with every seed",
        ExitCode.FAILED: "it stops with a seed",
    },
    "stage": {ExitCode.DONE: "every driver and engine is staged, or need not be", ExitCode.FAILED: "one is not"},
    "apply": {
        **_CHANGED,
        ExitCode.FAILED: "a node is not, nobody consented, or a saved plan is not what would be done now",
    },
    "reboot": _CHANGED,
    "status": {
        ExitCode.DONE: "every node is in service, or gets there by itself",
        ExitCode.FAILED: "a node needs somebody, or the state cannot be read",
    },
    "drift": {
        ExitCode.DONE: "every node is as declared",
        ExitCode.FAILED: "a node could not be compared, or cannot be brought to its declaration",
        ExitCode.CHANGES: "every node could be compared, and one differs",
    },
    "report": {ExitCode.DONE: "written, whatever the run came to", ExitCode.FAILED: "there is no such run"},
    "pause": _NOTED,
    "resume": _NOTED,
    "skip": _ASKED,
    "retry": _ASKED,
    "abandon": {
        ExitCode.DONE: _ASKED[ExitCode.DONE],
        ExitCode.FAILED: "refused for a node, one could not be put back into service, or nobody consented",
    },
    "rollback": _CHANGED,
    "remove": _CHANGED,
    "bundle": {
        ExitCode.DONE: "written, or every byte is as it should be",
        ExitCode.FAILED: "not written, or damaged",
    },
    "help": {ExitCode.DONE: "printed", ExitCode.FAILED: "there is no such page"},
    "completion": _WRITTEN,
    "version": {ExitCode.DONE: "shown; parts that are missing are said", ExitCode.FAILED: "it could not be read"},
    "controller": {
        ExitCode.DONE: "stopped, and what it had begun goes on with the next one",
        ExitCode.FAILED: "it cannot lead, or leads no longer",
    },
    "agent": {
        ExitCode.DONE: "told, whatever the run came to",
        ExitCode.FAILED: "it was not asked for anything that it can do",
    },
    "uninstall": {
        ExitCode.DONE: "no controller runs any more, and nothing is in flight",
        ExitCode.FAILED: "the controller goes on; what is in the way is named",
    },
}


def epilog_of(verb: str) -> str:
    """Return the codes of a verb as one paragraph for the end of its help text."""
    codes = {**OF_VERBS.get(verb, {}), **OF_ALL}
    return f"exit codes: {'; '.join(f'{int(code)} {codes[code]}' for code in sorted(codes))}"
