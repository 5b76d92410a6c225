"""What Sphinx is told: which files are pages, that they are Markdown as a forge reads it, and how the site looks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx
from sphinx.util.console import nocolor
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tasks.site.navigation import FRONT

ROOT: Final = Path(__file__).parents[2]
STATIC: Final = Path(__file__).parent / "static"
CORES: Final = 2
PAGES: Final = ("docs/**.md", "*.md", "lab/README.md", "playbooks/README.md", "deploy/**README.md", "tests/**README.md")
SKIPPED: Final = (".*", "bench", "build", "dist", "molecule", "plugin", "provision", "runtime_hook")
SETTINGS: Final[dict[str, Any]] = {
    "project": "grapnel",
    "extensions": ["myst_parser", "tasks.site.navigation", "tasks.site.shape"],
    "root_doc": FRONT,
    "include_patterns": list(PAGES),
    "exclude_patterns": list(SKIPPED),
    "smartquotes": False,  # `--gpus` stays as it is typed
    "suppress_warnings": [
        "toc.not_included",  # of pages that others lead to
        "misc.highlighting_failure",  # a diagram that a forge draws stays text
    ],
    "myst_heading_anchors": 6,
    "myst_disable_syntax": ["myst_block_break", "myst_line_comment", "myst_role", "myst_target"],
    "html_theme": "furo",
    "html_title": "grapnel",
    "html_copy_source": False,
    "html_use_index": False,
    "html_show_copyright": False,
    "html_static_path": [str(STATIC)],
    "html_search_scorer": str(STATIC / "scorer.js"),
    "html_css_files": ["site.css"],
    "html_js_files": ["site.js"],
}


def build(output: Path, working: Path, root: Path = ROOT) -> list[str]:
    """Write the site of a checkout to a folder; return what Sphinx warned of, such as links that lead nowhere."""
    nocolor()
    warnings = io.StringIO()
    with patch_docutils(None), docutils_namespace():
        app = Sphinx(
            root,
            None,
            output,
            working,
            "html",
            confoverrides=SETTINGS,
            status=None,
            warning=warnings,
            freshenv=True,
            parallel=CORES,
        )
        app.build()
    return sorted(set(warnings.getvalue().replace(f"{root}/", "").splitlines()) - {""})
