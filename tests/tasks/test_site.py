"""The documentation site: built without a network and without a warning, and read without another host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.machine.lock import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional

ROOT = Path(__file__).parents[2]
BUILT_S = 250.0
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)|<link\b[^>]*\bhref=\"([^\"]+)")
IMPORTED = re.compile(r"url\(\s*['\"]?(?!data:)(https?:|//)|@import")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all workers; without root, in a network of its own all the same."""
    shared = tmp_path_factory.getbasetemp().parent
    folder, done = shared / "site", shared / "site.built"
    with locked(shared / "site.lock", wait_s=BUILT_S):
        if not done.exists():
            build = [sys.executable, "-P", "-m", "tasks.site", "--output", str(folder)]
            argv = ["unshare", "--net", "--map-root-user", *build]
            result = subprocess.run(argv, cwd=ROOT, text=True, capture_output=True, timeout=BUILT_S, check=False)
            assert (result.returncode, result.stderr) == (0, ""), result.stdout
            done.touch()
    return folder


def pages(site: Path) -> Iterator[tuple[str, str]]:
    for page in site.rglob("*.html"):
        yield str(page.relative_to(site)), page.read_text(encoding="utf-8")


def test_every_page_of_the_documents_is_there(site: Path) -> None:
    documents = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}

    assert {str(page) for page in documents if not (site / page).exists()} == set()
    assert 'url=docs/README.html"' in site.joinpath("index.html").read_text()


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    loaded = {(page, one or other) for page, text in pages(site) for one, other in LOADED.findall(text)}
    foreign = {each for each in loaded if re.match(r"[a-z]+:|//", each[1]) and not each[1].startswith("data:")}
    styles = [path for path in site.rglob("*.css") if IMPORTED.search(path.read_text(encoding="utf-8"))]

    assert len(loaded) > 1000
    assert (foreign, styles) == (set(), [])
