"""Renders a drafted stack as the file that is written: every key below a comment that says where it is from. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.declaration.spec.model import API_VERSION, KIND
from provision.planning.draft.text import comment_lines, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.planning.draft.model import Said
    from provision.planning.gpu_operator.model import Conversion, DraftedStack, Key

_LONGEST: Final = 120  # characters of a value in a comment


def render_stack(stack: DraftedStack, conversion: Conversion, missing: Sequence[Key]) -> str:
    """Return the file of a stack; ``missing`` are the keys that it cannot say."""
    count = len({(key.source, key.path) for key in conversion.keys})
    head = (
        "What NVIDIA's GPU operator was told, as a GpuStack. docs/migrate/gpu-operator.md has the steps, and "
        f"`grapnel plan -f` shows what it brings. Of {count} keys, those below have no counterpart."
    )
    lines = [*comment_lines(head, ""), "#"]
    for key in missing:
        lines += comment_lines(f"- {describe(key)}: {key.why}", "")
    lines += [
        "",
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
        f"metadata: {{name: {stack.name}}}",
        "spec:",
        *comment_lines("A node is the stack's when it has these labels: give them to one node after the other.", "  "),
        "  nodeSelector:",
        "    matchLabels:",
        *(f"      {key}: {value_text(value)}" for key, value in stack.labels.items()),
        *_keys([(each.path, each) for each in stack.said], "  "),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _keys(said: Sequence[tuple[tuple[str, ...], Said]], indent: str) -> Iterator[str]:
    """Yield the lines of a level: keys that have a value here, and sections."""
    order = list(dict.fromkeys(path[0] for path, _ in said))
    by_key = sorted(said, key=lambda each: order.index(each[0][0]))
    for key, of_key in groupby(by_key, key=lambda each: each[0][0]):
        inside = list(of_key)
        path, first = inside[0]
        if len(path) == 1:
            yield from comment_lines(printable(first.reason), indent)
            yield f"{indent}{key}: {value_text(first.value)}"
        else:
            yield f"{indent}{key}:"
            yield from _keys([(path[1:], each) for path, each in inside], f"{indent}  ")


def describe(key: Key) -> str:
    """Return a key of the operator with its value, for people."""
    where = f"{key.source}, {key.path}" if key.path else key.source
    value = "" if key.value == "…" else f" ({printable(value_text(key.value), limit=_LONGEST)})"
    return f"{printable(where)}{value}"
