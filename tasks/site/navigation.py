"""The navigation of the site, from where pages lie and what the front page lists: no file has it once more."""

from __future__ import annotations

import functools
from html import escape
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx import addnodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

FRONT: Final = "docs/README"
LISTED_BY_THEMSELVES: Final = "docs/decisions/README"  # a hundred pages that nobody reads one after the other
FIRST: Final = 100  # before Sphinx collects what leads where, and the theme asks for the navigation
LAST: Final = 900  # when the theme has had its own


def above(page: str, pages: Collection[str]) -> str | None:
    """Return the page that has another one below it: of the same name as its folder, or that folder's README."""
    folder, _, name = page.rpartition("/")
    if name == "README":
        folder = folder.rpartition("/")[0]
    found = next((each for each in (folder, f"{folder}/README") if each in pages), None)
    return None if found == FRONT else found


def listed(front: nodes.document, pages: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Return for each section of the front page its title and the pages that it lists, but for those below another.

    A section lists what the first link of each row of its table leads to.
    """
    seen = set[str]()
    for section in (each for each in front[0] if isinstance(each, nodes.section)):
        rows = [next(row.findall(addnodes.pending_xref), None) for body in section.findall(nodes.tbody) for row in body]
        linked = [row["reftarget"] for row in rows if row is not None and row.get("refdomain") == "doc"]
        wanted = [page for page in dict.fromkeys(linked) if page not in seen and above(page, pages) is None]
        seen.update(wanted)
        if wanted:
            yield section[0].astext(), wanted


def render(env: BuildEnvironment, page: str, links: Callable[[str, str], str]) -> Iterator[str]:
    """Return the navigation of a page in the theme's words: the first level, and what lies below on the way to it.

    Sphinx makes every level anew for every page, and the theme parses all of it: half of a build.
    """
    leading = functools.partial(links, page)
    way = [page]
    while (upper := above(page, env.found_docs)) is not None:
        way.append(page := upper)
    for tree in env.tocs[FRONT].findall(addnodes.toctree):
        yield f'<p class="caption" role="heading"><span class="caption-text">{escape(tree["caption"])}</span></p>'
        yield from _level(env, [each for _, each in tree["entries"]], way, leading, 1)


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx ask for the navigation of each page that it has read."""
    app.connect("doctree-read", _navigate, priority=FIRST)
    app.connect("html-page-context", _withhold, priority=FIRST)
    app.connect("html-page-context", _render, priority=LAST)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _navigate(app: Sphinx, document: nodes.document) -> None:
    page, pages = app.env.docname, app.env.found_docs
    if page == FRONT:
        for title, entries in listed(document, pages):
            document[0].append(_tree(page, entries, title))
    elif page != LISTED_BY_THEMSELVES and (below := sorted(each for each in pages if above(each, pages) == page)):
        document[0].append(_tree(page, below, None))


def _withhold(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: object) -> None:
    context["toctree"] = lambda **_: ""


def _render(app: Sphinx, page: str, _template: str, context: dict[str, Any], _document: object) -> None:
    context["furo_navigation_tree"] = "".join(render(app.env, page, app.builder.get_relative_uri))


def _level(
    env: BuildEnvironment, entries: Iterable[str], way: Sequence[str], links: Callable[[str], str], depth: int
) -> Iterator[str]:
    yield "<ul>"
    for entry in entries:
        current = " current current-page" if entry == way[0] else " current" if entry in way else ""
        yield f'<li class="toctree-l{depth}{current}"><a class="reference internal{current}" href="{links(entry)}">'
        yield f"{escape(env.titles[entry].astext())}</a>"
        if current and (below := env.toctree_includes.get(entry)):
            yield from _level(env, below, way, links, depth + 1)
        yield "</li>"
    yield "</ul>"


def _tree(page: str, entries: list[str], caption: str | None) -> addnodes.toctree:
    return addnodes.toctree(
        "",
        parent=page,
        entries=[(None, each) for each in entries],
        includefiles=entries,
        maxdepth=1,
        caption=caption,
        rawcaption=caption,
        glob=False,
        hidden=True,
        includehidden=False,
        numbered=0,
        titlesonly=True,
    )
