"""Checks what a module answered and returns it as plain values within limits.

A node on which somebody else is root can answer anything. Ansible acts on some keys of an answer
(``ansible_facts`` become variables, ``ansible_stats`` are added up for all hosts, ``results`` count as a loop's), and a
deep or endless one ends the run of every node. So nothing passes but what the module is documented to return.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

MAX_DEPTH = 24
MAX_VALUES = 500_000
MAX_CHARACTERS = 3_500_000
_MAX_TEXT = 64 * 1024
_MAX_NUMBER = 2**63

# Of every module.
_COMMON: Mapping[str, type] = {"changed": bool, "failed": bool, "skipped": bool, "msg": str, "rc": int, "diff": object}
# Ansible acts on these, whatever module they come from.
_ACTED_ON = frozenset({"add_group", "add_host", "ansible_job_id", "ansible_stats", "results", "unreachable"})
_STREAMS = ("stdout", "stderr", "module_stdout", "module_stderr")
_SHOWN = ("msg", "diff", *_STREAMS)  # what Ansible prints
# Copies, and what a module adds: the action reports it from the checked answer, or not at all.
_DROPPED = frozenset({"invocation", "warnings", "deprecations", "exception", "stdout_lines", "stderr_lines"})
_DISCOVERED = re.compile(r"^discovered_interpreter_[a-z]+$")
_INTERPRETER = re.compile(r"^/[A-Za-z0-9._/+-]{1,255}$")
_DIFF_KEYS = frozenset({"before", "after", "before_header", "after_header", "prepared"})


class AnswerError(Exception):
    """An answer does not fit its module; the message is about the answer, the caller knows the host."""


def check_answer(answer: object, returns: Mapping[str, type] | None) -> dict[str, Any]:
    """Return the parts of an answer that its module may return, as plain values; raises `AnswerError`.

    ``returns`` are the module's own keys by type, and any further one is an error; None for a module of which only the
    keys that all have in common are wanted, and others are left out.
    """
    if not isinstance(answer, Mapping):
        raise AnswerError("it is not a mapping")
    known = {**_COMMON, **(returns or {})}
    found: dict[str, Any] = {}
    budget = _Budget()
    for key in answer:
        if key in known:
            found[key] = _typed(key, budget.plain(answer[key]), known[key])
        elif key in _STREAMS:
            found[key] = _typed(key, budget.plain(answer[key]), str)[-_MAX_TEXT:]
        elif key == "ansible_facts":
            found |= _discovered(answer[key])
        elif key in _ACTED_ON or (returns is not None and not _is_dropped(key)):
            raise AnswerError(f"it has a key that the module does not return: {str(key)[:100]!r}")
    if "diff" in found and not _is_diff(found["diff"]):
        raise AnswerError("its diff is malformed")
    return found | {key: show(found[key]) for key in _SHOWN if key in found}


def show(value: Any) -> Any:
    """Return a value with its texts as Ansible may print them: lines, tabs and printable characters."""
    if isinstance(value, str):
        return "\n".join("\t".join(map(_spelled, line.split("\t"))) for line in value.split("\n"))
    if isinstance(value, dict):
        return {_spelled(key): show(one) for key, one in value.items()}
    return [show(one) for one in value] if isinstance(value, list) else value


def _spelled(text: str) -> str:
    return text if text.isascii() and text.isprintable() else printable(text, limit=10 * len(text))


def _is_dropped(key: object) -> bool:
    return key in _DROPPED or str(key).startswith("_ansible_")


def _typed(key: str, value: Any, kind: type) -> Any:
    is_number = kind is int and isinstance(value, bool)
    if not isinstance(value, kind) or is_number:
        raise AnswerError(f"its {key} is {type(value).__name__}, not {kind.__name__}")
    return value


def _discovered(facts: object) -> dict[str, Any]:
    """Return the interpreter that Ansible itself has found on the host; any other fact was not asked for."""
    if not isinstance(facts, Mapping):
        raise AnswerError("its ansible_facts are not a mapping")
    for name, value in facts.items():
        if not _DISCOVERED.match(str(name)):
            raise AnswerError(f"it has a fact that was not asked for: {str(name)[:100]!r}")
        if not isinstance(value, str) or not _INTERPRETER.match(value):
            raise AnswerError("its interpreter is not a path")
    return {"ansible_facts": {str(name): _native(value) for name, value in facts.items()}} if facts else {}


def _is_diff(value: object) -> bool:
    parts = value if isinstance(value, list) else [value]
    return all(
        isinstance(part, dict)
        and set(part) <= _DIFF_KEYS
        and all(isinstance(one, (str, dict)) for one in part.values())
        for part in parts
    )


@dataclass
class _Budget:
    """What is left of the limits of one answer."""

    values: int = MAX_VALUES
    characters: int = MAX_CHARACTERS

    def plain(self, value: object, depth: int = MAX_DEPTH) -> Any:
        """Return a value of JSON's kinds and Python's own types, without Ansible's tags; raises `AnswerError`."""
        self.values -= 1
        if self.values < 0:
            raise AnswerError(f"it holds more than {MAX_VALUES} values")
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (int, float)):
            return _number(value)
        if depth == 0:
            raise AnswerError(f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            return {self._text(key): self.plain(one, depth - 1) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(one, depth - 1) for one in value]
        raise AnswerError(f"it holds a value of an unknown type: {type(value).__name__}")

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise AnswerError("it has a key that is not text")
        self.characters -= len(value)
        if self.characters < 0:
            raise AnswerError(f"it holds more than {MAX_CHARACTERS} characters")
        text = _native(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise AnswerError("it holds text that is not UTF-8") from error
        return text


def _number(value: float | None) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if not -_MAX_NUMBER <= value <= _MAX_NUMBER:  # not a number is not between them either
        raise AnswerError("it holds a number that is out of range")
    return int(value) if isinstance(value, int) else float(value)


def _native(text: str) -> str:
    """Return a text without what a subclass adds, such as Ansible's tags: trust and origin among them."""
    return str.__str__(text)
