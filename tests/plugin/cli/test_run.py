"""A daemon that waited for its node begins with what is declared by then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugin.cli import run
from plugin.cli.grammar.parser import build_parser
from plugin.system.sole import NodeLock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("words", "expected"), [(["--in-pod"], "example.com/after"), ([], "example.com/before")])
def test_a_pod_that_waited_for_the_node_begins_with_what_is_declared_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    """An apply that ends the service declares otherwise before that; nobody tells a pod of files of before."""
    file, seen = tmp_path / "node.json", list[str]()

    def declare(resource: str) -> None:
        file.write_text(json.dumps({"resource": resource, "adminSocket": str(tmp_path / "node.sock")}))

    def take(*_: object, **__: object) -> NodeLock:
        declare("example.com/after")
        return NodeLock(tmp_path / "node.lock")

    def begin(sources: Any, *_: object, **__: object) -> int:
        seen.append(sources.config.resource)
        return 0

    declare("example.com/before")
    monkeypatch.setattr(run, "_take_node", take)
    monkeypatch.setattr(run, "_run", begin)
    assert run.run(build_parser("run").parse_args(["run", *words, "--config", str(file)])) == 0
    assert seen == [expected]
