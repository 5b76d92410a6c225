"""Defines everything the hook can fail with.

::

    HookError                     expected failure: one line on stderr, exit status 1
    ├── StateError                what the runtime put on stdin, or the bundle it points to
    ├── ConfigError               /etc/grapnel/hook.json
    ├── RequestError              what the container asks for cannot be given
    │   └── RequirementError      the container says itself that it cannot run here
    ├── InventoryError            the host's driver files, or the inventory of them
    ├── LimitError                the node daemon did not set the memory limit that the container must have
    ├── CacheError                a loader cache that is not one
    ├── InjectionError            an operation on the container failed
    ├── DeadlineError             the time limit was reached
    └── ReleaseError              the installed hook itself cannot be packed

Anything else that escapes is a bug: exit status 70. In every case the runtime refuses the container.
"""

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_BUG = 70


class HookError(Exception):
    """An expected failure: what went wrong, and a hint that helps."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


class StateError(HookError):
    """The container state on stdin, or the bundle's config.json, cannot be used."""


class ConfigError(HookError):
    """The hook's own configuration cannot be used."""


class RequestError(HookError):
    """The container asks for something that this node cannot or may not give."""


class RequirementError(RequestError):
    """A requirement of the image is not met; ``requirement`` is its variable and the term that fails."""

    def __init__(self, what: str, hint: str, requirement: str) -> None:
        super().__init__(what, hint)
        self.requirement = requirement


class InventoryError(HookError):
    """The host's driver files or their inventory are missing, damaged or contradictory."""


class LimitError(HookError):
    """The container must not start without a memory limit, and has none."""


class CacheError(HookError):
    """A file is not a valid loader cache."""


class InjectionError(HookError):
    """An operation on the container's root failed; everything done so far has been undone."""


class DeadlineError(HookError):
    """The time limit was reached; everything done so far has been undone."""


class ReleaseError(HookError):
    """The hook's own files are not as an installation leaves them."""


def one_line(text: str, limit: int = 600) -> str:
    """Return text of outside origin as one bounded, printable line."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text[: limit + 1])
    return printable if len(printable) <= limit else printable[:limit] + "…"
