"""Says what the exit codes of each verb mean: for help texts and `docs/exit-codes.md`, which a test compares.

The codes themselves are `EXIT_…` of `plugin.base.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_BUG, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_NOT_AS_WANTED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_ALL: Mapping[int, str] = {
    EXIT_USAGE: "the command line is wrong",
    EXIT_BUG: "a bug",
    EXIT_INTERRUPTED: "interrupted",
}
_SHOWN: Mapping[int, str] = {EXIT_OK: "shown", EXIT_FAILURE: "it could not be read"}
OF_VERBS: Mapping[str, Mapping[int, str]] = {
    "run": {EXIT_OK: "ended by SIGTERM", EXIT_FAILURE: "it could not start, or the node has another daemon"},
    "devices": _SHOWN,
    "labels": _SHOWN,
    "config": _SHOWN,
    "holders": _SHOWN,
    "drift": {
        EXIT_OK: "as declared; with --output: written",
        EXIT_FAILURE: "it could not be compared, or a change is at work; with --output: not written",
        EXIT_NOT_AS_WANTED: "it differs",
    },
    "release": {
        EXIT_OK: "released, and nothing holds a GPU",
        EXIT_FAILURE: "the message says whether the node was released",
        EXIT_NOT_AS_WANTED: "released, and something still holds a GPU",
    },
    "verify": {
        EXIT_OK: "as expected",
        EXIT_FAILURE: "it could not be compared",
        EXIT_NOT_AS_WANTED: "not as expected",
    },
    "resume": {
        EXIT_OK: "GPUs are offered, or will be when the daemon starts",
        EXIT_FAILURE: "the daemon runs and offers none",
    },
    "offered": {
        EXIT_OK: "GPUs are offered, or wait for pods that have them by the other interface",
        EXIT_FAILURE: "it could not be asked",
        EXIT_NOT_AS_WANTED: "they are not offered as node.json says",
    },
    "mig": {
        EXIT_OK: "shown, or cut as wanted",
        EXIT_FAILURE: "it cannot be cut so, or a step failed",
        EXIT_NOT_AS_WANTED: "plan: there is something to change; apply, restore: a GPU is still to be cut",
    },
    "gpu-settings": {
        EXIT_OK: "shown, or set as declared",
        EXIT_FAILURE: "plan: a GPU cannot have it; apply: a change failed",
        EXIT_NOT_AS_WANTED: "plan: there is something to change; apply: a GPU cannot have what is declared",
    },
    "health": {EXIT_OK: "shown, or decided", EXIT_FAILURE: "it could not be read or decided"},
    "explain": {EXIT_OK: "shown", EXIT_FAILURE: "it could not be read, or nothing is known of it"},
    "inspect": _SHOWN,
    "gpushare-extender": {EXIT_OK: "ended by SIGTERM", EXIT_FAILURE: "it could not start"},
}


def epilog_of(verb: str) -> str:
    """Return the codes of a verb as one paragraph for the end of its help text."""
    codes = {**OF_VERBS.get(verb, {}), **OF_ALL}
    return f"exit codes: {'; '.join(f'{code} {codes[code]}' for code in sorted(codes))}"
