"""What is installed on all nodes is taken from beside the declaration only where nobody else has put it there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from provision.planning.supply.payload.errors import PayloadError
from provision.planning.supply.payload.place import payload_folder

if TYPE_CHECKING:
    from pathlib import Path

STRANGER = 54321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")


def beside(tmp_path: Path) -> tuple[Path, Path]:
    declaration, payload = tmp_path / "grapnel.yaml", tmp_path / "dist" / "payload"
    declaration.write_text("")
    payload.mkdir(parents=True)
    return declaration, payload


def refused(declaration: Path, payload: Path) -> bool:
    with pytest.raises(PayloadError, match="belongs to somebody else, or anybody can write in it") as error:
        payload_folder(None, {}, declaration)
    assert payload_folder(payload, {}, declaration) == payload
    return f"--payload {payload}" in error.value.hint


@AS_ROOT
@pytest.mark.parametrize("place", ["dist", "dist/payload"])
def test_a_folder_that_another_user_made_beside_a_declaration_is_no_payload(tmp_path: Path, place: str) -> None:
    """A declaration in /tmp: whoever made /tmp/dist had root of all its nodes."""
    declaration, payload = beside(tmp_path)
    os.chown(tmp_path / place, STRANGER, STRANGER)

    assert refused(declaration, payload)


@AS_ROOT
def test_a_link_of_another_user_leads_to_no_older_payload(tmp_path: Path) -> None:
    declaration, payload = beside(tmp_path)
    (tmp_path / "dist").rename(tmp_path / "old")
    (tmp_path / "dist").symlink_to("old")
    os.lchown(tmp_path / "dist", STRANGER, STRANGER)

    assert refused(declaration, payload)


def test_a_folder_that_everybody_can_write_in_is_no_payload(tmp_path: Path) -> None:
    declaration, payload = beside(tmp_path)
    payload.chmod(0o777)

    assert refused(declaration, payload)


@AS_ROOT
def test_who_wrote_the_declaration_may_have_built_the_payload(tmp_path: Path) -> None:
    declaration, payload = beside(tmp_path)
    for path in (declaration, payload, payload.parent):
        os.chown(path, STRANGER, STRANGER)

    assert payload_folder(None, {}, declaration) == payload
