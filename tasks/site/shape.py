"""What the site needs beyond pages: where it begins, what becomes of links to folders, a search that is built fast."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sphinx.addnodes import pending_xref
from sphinx.search.en import SearchEnglish

from tasks.site.navigation import FRONT

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

_TO_FRONT: Final = """<!doctype html>
<meta charset="utf-8">
<title>grapnel</title>
<meta http-equiv="refresh" content="0; url={front}">
<a href="{front}">grapnel</a>
"""


class _Search(SearchEnglish):
    """Stems each word once: two fifths of a build went into the stems of words of other pages."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._kept = functools.cache(super().stem)

    def stem(self, word: str) -> str:
        """Return the stem of a word."""
        return self._kept(word)


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of all of it."""
    app.add_search_language(_Search)
    app.connect("doctree-read", _folders_as_text)
    app.connect("build-finished", _begin_at_front)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _folders_as_text(app: Sphinx, document: nodes.document) -> None:
    """Leave of a link to a folder what it says: a forge shows the files of a folder, a site has no page for it."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(document.findall(pending_xref)):
        if link["reftype"] == "myst" and (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def _begin_at_front(app: Sphinx, failure: Exception | None) -> None:
    if failure is None:
        Path(app.outdir, "index.html").write_text(_TO_FRONT.format(front=f"{FRONT}.html"), encoding="utf-8")
