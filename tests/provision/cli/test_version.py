"""`grapnel version` and `--version`: what this installation is, and what nodes would get."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision import __version__
from provision.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def archive(name: str, digit: str) -> dict[str, object]:
    return {"name": name, "digest": digit * 64, "size_bytes": 4}


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A payload where the environment says that it is."""
    folder = tmp_path / "payload"
    folder.mkdir()
    manifest = {
        "schema": "grapnel.dev/payload/v1alpha1",
        "hook": archive("hook.tar", "a"),
        "driver": archive("driver.tar", "b"),
        "node": {"3.10": archive("node.tar", "c")},
        "unit": "[Unit]\n",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name in ("hook.tar", "driver.tar", "node.tar"):
        (folder / name).write_text("1234")
    monkeypatch.setenv("GRAPNEL_PAYLOAD", str(folder))
    return folder


@pytest.mark.parametrize("words", [["--version"], ["version"]], ids=" ".join)
def test_the_archives_for_nodes_are_told_by_digest_and_python(
    words: list[str], payload: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"grapnel {__version__}",
        f"collection  grapnel.node {__version__}",
        f"payload     {payload}",
        "  hook      aaaaaaaaaaaa",
        "  driver    bbbbbbbbbbbb",
        "  daemon    cccccccccccc  for nodes with Python 3.10 and later",
    ]


@pytest.mark.parametrize("words", [["--version"], ["version"]], ids=" ".join)
def test_a_payload_that_is_not_there_is_said_with_what_to_do(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAPNEL_PAYLOAD", str(tmp_path / "none"))

    assert main(words) == 0

    assert capsys.readouterr().out.splitlines()[2:] == [
        f"nodes cannot be provisioned: no payload in {tmp_path}/none",
        f"  hint: build it: python -m provision.planning.supply.payload build --output {tmp_path}/none",
    ]


def test_an_archive_that_is_cut_off_is_said(payload: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (payload / "hook.tar").write_text("1")

    main(["version"])

    assert f"{payload}/hook.tar has 1 bytes, not 4" in capsys.readouterr().out


def test_the_document_for_scripts_has_whole_digests(payload: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "grapnel.dev/version/v1alpha1"
    assert (document["grapnel"], document["collection"]["version"]) == (__version__, __version__)
    assert document["payload"] == {
        "path": str(payload),
        "hook": "a" * 64,
        "driver": "b" * 64,
        "node": "c" * 64,
        "python": "3.10",
    }
    assert document["problems"] == []


def test_the_document_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json", "--payload", str(tmp_path / "none")]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["payload"] is None
    assert [problem["message"] for problem in document["problems"]] == [f"no payload in {tmp_path}/none"]


def test_a_payload_can_be_named(payload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPNEL_PAYLOAD", "/nowhere")

    assert main(["version", "--payload", str(payload)]) == 0
