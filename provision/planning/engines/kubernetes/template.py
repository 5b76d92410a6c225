"""Adds our part to a template of containerd's configuration, and reads which handlers somebody wrote into it himself.

A template is no TOML before it is rendered, and what was rendered from it may be older than it is. So it is read line
by line, as headers of tables and dotted keys. A name that is made when it is rendered is nobody's yet.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Final

from provision.planning.engines.containerd.imports import CRI_NAMES
from provision.planning.engines.files.engine_file import shown
from provision.planning.engines.files.mark import without_block
from provision.planning.engines.files.toml_text import render_toml
from provision.planning.engines.kubernetes.handler import Written, render_kubernetes_drop_in
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

BASE_TEMPLATE: Final = '{{ template "base" . }}\n'
Name = tuple[str, ...]

_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAME})\s*\]\s*(?:#.*)?$")
_SETTING = re.compile(rf"\s*({_NAME})\s*=\s*(.?)")
_PARTS = re.compile(_PART)
_ACTION = re.compile(r"\{\{[^{}]*\}\}")
_RUNTIMES = ("plugins", "", "containerd", "runtimes")  # with the plugin's name in the second place


def handlers_of(template: str, handlers: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the handlers that somebody has written into a template."""
    return tuple(each for each in handlers if _find_handler(without_block(template), [each]))


def without_handlers(path: str, template: str, handlers: Collection[str]) -> str:
    """Return what stands above our part without the tables of these handlers, which are taken over.

    Raises `EngineConfigError` where a table has more in it than settings, such as a condition of the template.
    """
    kept: list[str] = []
    taken: list[str] = []
    between: list[str] = []  # blank lines and comments, which belong to the table that they lead up to
    is_theirs = False
    for line in without_block(template).splitlines(keepends=True):
        if not line.strip() or line.lstrip().startswith("#"):
            between.append(line)
            continue
        if line.lstrip().startswith("["):
            header = _HEADER.match(line)
            name = _parts(header[1]) if header else ()
            is_theirs = _is_on_the_way(name) and not {*name[len(_RUNTIMES) : len(_RUNTIMES) + 1]}.isdisjoint(handlers)
        (taken if is_theirs else kept).extend([*between, line])
        between.clear()
    kept += between
    try:
        tomllib.loads("".join(taken))
    except ValueError as error:
        raise EngineConfigError(
            f"the handler in {shown(path)} cannot be taken over: there is more in its tables than settings",
            hint="take its lines out of that template, then plan again",
        ) from error
    return "".join(kept)


def render_template(
    template: str | None, written: Written, handlers: tuple[str, ...], adopted: tuple[str, ...] = ()
) -> str:
    """Return a template with our block at its end; without one, that of k3s's own followed by our block."""
    above = BASE_TEMPLATE if template is None else without_block(template)
    block = tomllib.loads(render_kubernetes_drop_in(written, handlers, adopted))
    del block["version"]  # the template's own
    return f"{above}{'' if above.endswith(chr(10)) else chr(10)}{render_toml(block)}"


def require_free_template(engine: str, path: str, text: str, handlers: tuple[str, ...]) -> None:
    """Refuse to add to a template that has a handler of ours already: containerd does not start with two of a name.

    What was rendered from it may not have the handler yet. Raises `EngineConfigError`.
    """
    template = without_block(text)
    if found := _find_handler(template, handlers):
        handler, line = found
        raise EngineConfigError(
            f"{engine} has a handler {handler!r} already, in {shown(path)}:{line}, and grapnel did not write it",
            hint="take its lines out of that template, restart the service if it has started with them, then plan "
            "again; or declare another runtime.handler: docs/engines/distributions.md has both ways",
        )
    if inline := _find_inline_table(template):
        raise EngineConfigError(
            f"{engine} has its handlers in an inline table, in {shown(path)}:{inline}, to which none can be added",
            hint='write it as tables, such as [plugins."…".containerd.runtimes.runc], then plan again',
        )


def _find_handler(template: str, handlers: Collection[str]) -> tuple[str, int] | None:
    """Return the first of these handlers that a template has, with its line; None where it has none of them."""
    for line, name, _ in _names(template):
        if _is_on_the_way(name) and len(name) > len(_RUNTIMES) and name[len(_RUNTIMES)] in handlers:
            return name[len(_RUNTIMES)], line
    return None


def _find_inline_table(template: str) -> int | None:
    """Return the line of an inline table of handlers, which no table can be added to; None where there is none."""
    for line, name, is_inline in _names(template):
        if is_inline and _is_on_the_way(name) and len(name) <= len(_RUNTIMES):
            return line
    return None


def _is_on_the_way(name: Name) -> bool:
    """Tell whether a name leads to containerd's handlers, or to what is in them."""
    plain = (*name[:1], *("" if each in CRI_NAMES else each for each in name[1:2]), *name[2 : len(_RUNTIMES)])
    return plain == _RUNTIMES[: len(plain)]


def _names(template: str) -> Iterator[tuple[int, Name, bool]]:
    """Yield every table and setting: its line, its whole name, and whether its value begins as an inline table."""
    table: Name = ()
    for number, line in enumerate(template.splitlines(), start=1):
        text = _ACTION.sub("", line)
        if header := _HEADER.match(text):
            table = _parts(header[1])
            yield number, table, False
        elif setting := _SETTING.match(text):
            yield number, (*table, *_parts(setting[1])), setting[2] == "{"


def _parts(name: str) -> Name:
    return tuple(part.strip("\"'") for part in _PARTS.findall(name))
