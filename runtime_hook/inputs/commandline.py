"""Parses the command line of an OCI runtime, as far as wrapper and hook need it. Pure.

There is no specification of it; the flags are those of runc 1.0 to 1.3 and crun 1.8 to 1.21 (``--help`` of each), and
containerd's shim and Podman's conmon use a part of them. Both runtimes take a flag's value behind ``=`` or as the
next word, and take flags of a verb behind its arguments as well.
"""

from __future__ import annotations

from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STARTING_VERBS = ("create", "run")
_VERBS = frozenset(
    (
        "checkpoint", "create", "delete", "events", "exec", "features", "help", "init", "kill", "list", "mounts",
        "pause", "ps", "restore", "resume", "run", "spec", "start", "state", "update",
    )
)  # fmt: skip
_GLOBAL_FLAGS_WITH_VALUE = frozenset(("root", "log", "log-format", "criu", "rootless", "cgroup-manager"))
_GLOBAL_FLAGS_ALONE = frozenset(("debug", "systemd-cgroup", "help", "h", "version", "v", "V", "usage", "?"))
_FLAGS_WITH_VALUE = frozenset(
    ("bundle", "b", "config", "f", "console-socket", "pid-file", "preserve-fds", "pidfd-socket")
)


@value
class Call:
    """One call of a runtime. ``bundle`` and ``config`` count for the starting verbs alone."""

    verb: str
    bundle: str = "."
    config: str = "config.json"
    log: str = ""
    log_format: str = "text"


def read_call(arguments: Sequence[str]) -> Call:
    """Read a runtime's command line, without its own name; the verb is "" where there is none."""
    position, settings = _read_global_flags(arguments)
    verb = arguments[position] if position < len(arguments) else ""
    found = {"log": settings.get("log", ""), "log_format": settings.get("log-format", "text")}
    if verb in STARTING_VERBS:
        for name, text in _flags_of_verb(arguments[position + 1 :]):
            if name in {"bundle", "b"}:
                found["bundle"] = text
            elif name in {"config", "f"}:
                found["config"] = text
    return Call(verb=verb, **found)


def _read_global_flags(arguments: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Return where the verb stands, and the flags before it.

    A flag of a later release may take a value or not: the word behind it is its value unless it is a verb. So a verb
    is never missed, which would start a container without its hook.
    """
    settings: dict[str, str] = {}
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        name, has_value, text = _split(arguments[position])
        following = arguments[position + 1] if position + 1 < len(arguments) else ""
        position += 1
        if not has_value and _takes_next(name, following):
            text = following
            position += 1
        settings[name] = text
    return position, settings


def _takes_next(name: str, following: str) -> bool:
    if name in _GLOBAL_FLAGS_WITH_VALUE:
        return True
    return not (name in _GLOBAL_FLAGS_ALONE or not following or following.startswith("-") or following in _VERBS)


def _flags_of_verb(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            return
        if not word.startswith("-"):
            continue
        name, has_value, text = _split(word)
        if not word.startswith("--") and name[:1] in {"b", "f"} and name not in _FLAGS_WITH_VALUE:
            name, has_value, text = name[:1], True, name[1:]  # crun's short form: -bBUNDLE
        if name in _FLAGS_WITH_VALUE and not has_value and position < len(words):
            text = words[position]
            position += 1
        yield name, text


def _split(word: str) -> tuple[str, bool, str]:
    """Return a flag's name, whether it has a value of its own, and that."""
    name, sign, text = word.lstrip("-").partition("=")
    return name, bool(sign), text
