"""`grapnel help`: prints a page of the documents, which come with grapnel, by the name that messages give it.

The name of a verb alone stands for the help of that verb.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import provision
from provision.base.errors import ExitCode, GrapnelError
from provision.cli import build_parser
from provision.cli.parsers.verbs import VERBS
from provision.declaration.spec.validate import nearest
from provision.report.console import make_console
from provision.report.documents.page import render_page
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse

_HOME = Path(provision.__file__).parent
# of a wheel; of a checkout
PLACES = (_HOME / "_docs", _HOME.parent / "docs")
_LEFT_OUT = ("contracts", "decisions")  # of a checkout: no pages for people who look something up


def run(args: argparse.Namespace) -> int:
    """Print a page, the help of a verb, or the names of all pages."""
    if args.page in VERBS:
        with contextlib.suppress(SystemExit):  # argparse has printed it
            build_parser((args.page,), whole=True).parse_args([args.page, "--help"])
        return ExitCode.DONE
    folder = next((each for each in PLACES if each.is_dir()), None)
    if folder is None:
        raise GrapnelError("this installation has no pages", hint="reinstall grapnel")
    pages = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.md"))}
    if not args.page:
        listed = (name for name in pages if name.partition("/")[0] not in _LEFT_OUT)
        print("\n".join(f"{f'docs/{name}.md':40} {_title(pages[name])}" for name in listed))
        return ExitCode.DONE
    name = args.page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        near = nearest(name, list(pages))
        hint = f"`grapnel help docs/{near}.md`, or `grapnel help` for all" if near else "`grapnel help` names all"
        raise GrapnelError(f"there is no page {args.page}", hint=hint)
    text = pages[name].read_text(encoding="utf-8")
    if sys.stdout.isatty():
        show(make_console(sys.stdout), [render_page(text)])
    else:
        print(text, end="")
    return ExitCode.DONE


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next((line.lstrip("# ").strip() for line in lines if line.startswith("# ")), "")
