"""The mark of a file: who has written what stands there now."""

from __future__ import annotations

import pytest

from provision.planning.engines.files.mark import Origin, marked, origin_of

TEXT = marked("version = 3\n")
OF_A_FORMER_RELEASE = "# managed by grapnel: the next apply puts back what is changed here\nversion = 3\n"


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        pytest.param(TEXT, Origin.OURS, id="as it was written"),
        pytest.param(f"{TEXT}# why\n", Origin.EDITED, id="a line at the end"),
        pytest.param(f"# why\n{TEXT}", Origin.EDITED, id="a line before the mark"),
        pytest.param(TEXT.replace("= 3", "= 2"), Origin.EDITED, id="another value"),
        pytest.param(TEXT.rstrip("\n"), Origin.EDITED, id="without its last line break"),
        pytest.param("version = 3\n", Origin.FOREIGN, id="without a mark"),
        pytest.param("", Origin.FOREIGN, id="empty"),
        pytest.param(OF_A_FORMER_RELEASE, Origin.OURS, id="the mark of a release before checksums"),
        pytest.param(marked("x = '\udc80'\n"), Origin.OURS, id="bytes that are no text"),
    ],
)
def test_who_has_written_a_text_is_told(text: str, origin: Origin) -> None:
    assert origin_of(text) is origin
