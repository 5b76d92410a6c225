"""Tells people what a verb has noted, as it happens, or a script at the end: of `pause`, `skip` and the like."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from provision.base.printable import printable_json
from provision.cli.terminal import say
from provision.report.documents.answer import SCHEMA, AnswerDocument, AnswerPause, AnswerStep, NodeAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.rollout.interface.pause import Pause
    from provision.rollout.requests import Step


@dataclass(slots=True)
class Answers:
    """What is said of whom. With ``as_json`` people read it on standard error."""

    verb: str
    as_json: bool = False
    place: str | None = None
    pause: Pause | None = None
    before: Pause | None = None
    _nodes: dict[str, list[str]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _says: list[str] = field(default_factory=list)
    _steps: dict[str, list[Step]] = field(default_factory=dict)

    def say(self, text: str, node: str = "", *, is_refused: bool = False) -> None:
        """Say a line, about a node or about all of it."""
        (self._nodes.setdefault(node, []) if node else self._says).append(text)
        if is_refused:
            self._refused.add(node)
        say(f"{node}: {text}" if node else text, sys.stderr if self.as_json else sys.stdout)

    def would(self, node: str, steps: Iterable[Step]) -> None:
        """Say what would be changed of a node; nothing is."""
        told = list(steps)
        self._steps.setdefault(node, []).extend(told)
        for step in told:
            say(f"{node}: would {step.action} {step.target}", sys.stderr if self.as_json else sys.stdout)

    def end(self, code: int) -> int:
        """Print the document if one is wanted; return the exit code."""
        if self.as_json:
            self._print(code)
        return code

    def _print(self, code: int) -> None:

        document = AnswerDocument(
            schema=SCHEMA,
            verb=self.verb,  # type: ignore[arg-type]  # one of those that have it
            exit_code=code,
            place=self.place,
            pause=_pause(self.pause),
            before=_pause(self.before),
            nodes=tuple(
                NodeAnswer(
                    node=node,
                    refused=node in self._refused,
                    says=tuple(self._nodes.get(node, ())),
                    steps=tuple(AnswerStep(action=each.action, target=each.target) for each in self._steps[node])
                    if node in self._steps
                    else None,
                )
                for node in dict.fromkeys((*self._nodes, *self._steps))
            ),
            says=tuple(self._says),
        )
        print(printable_json(msgspec.to_builtins(document)))


def _pause(pause: Pause | None) -> AnswerPause | None:
    return None if pause is None else AnswerPause(by=pause.by, since=pause.since, reason=pause.reason)
