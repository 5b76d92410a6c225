"""Renders a draft as the files that are written: the declaration, and an inventory with its groups.

Every value stands below a comment that says where it is from. Both are YAML in which values are JSON, which YAML reads.
"""

from __future__ import annotations

import json
import re
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import API_VERSION, KIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.planning.draft.fleet import FleetDraft
    from provision.planning.draft.model import Said

_WIDTH: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_NOT_TEXT: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def render_declaration(draft: FleetDraft) -> str:
    """Return the declaration: what is said for all nodes."""
    nodes = sum(len(group.nodes) for group in draft.groups)
    lines = [
        *comment_lines(
            f"What {nodes} node{'s were' if nodes != 1 else ' was'} when `grapnel init` looked at them. "
            "A key that does not stand here has its default; `grapnel init --every-key` writes all of them.",
            "",
        ),
        "",
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
        "spec:",
        *(_keys(draft.common, "  ") if draft.common else ["  {}"]),
    ]
    return "\n".join(lines).replace("spec:\n  {}", "spec: {}") + "\n"


def render_groups(draft: FleetDraft, declaration: str) -> str | None:
    """Return an inventory with the groups that differ, for use beside the fleet's own; None where none does."""
    differing = [group for group in draft.groups if group.own]
    if not differing:
        return None
    lines = comment_lines(
        f"What nodes have that others do not, beside {declaration}. Name this file as a second inventory: "
        "grapnel plan -i INVENTORY -i THIS_FILE.",
        "",
    )
    lines += ["", "all:", "  children:"]
    for group in differing:
        lines += [f"    {group.name}:", "      hosts:", *(f"        {_text(node)}: {{}}" for node in group.nodes)]
        lines += ["      vars:", "        grapnel_stack:", *_keys(group.own, "          ")]
    return "\n".join(lines) + "\n"


def _keys(said: Sequence[Said], indent: str) -> Iterator[str]:
    """Yield lines with all keys, section by section."""
    order = list(dict.fromkeys(each.path[0] for each in said))
    by_section = sorted(said, key=lambda each: order.index(each.path[0]))
    for section, of_section in groupby(by_section, key=lambda each: each.path[0]):
        yield f"{indent}{section}:"
        for each in of_section:
            yield from comment_lines(each.reason, f"{indent}  ")
            yield f"{indent}  {each.path[1]}: {value_text(each.value)}"


def comment_lines(text: str, indent: str) -> list[str]:
    """Return a text as comments of YAML, wrapped."""
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def value_text(value: object) -> str:
    """Return a value as YAML on one line."""
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    is_plain = _PLAIN.match(value) and value.lower() not in _NOT_TEXT
    return value if is_plain else json.dumps(value)
