"""`inspect` and `gpushare-extender` on the command line: who is asked, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugin.base.errors import ClusterError
from plugin.cli import main
from plugin.cli.gpushare import inspection, source_of
from plugin.gpushare.books.model import RESOURCE
from tests.plugin.gpushare.documents import node_document, pod_document, report


class Api:
    """Answers lists in pages of one."""

    def __init__(self) -> None:
        self.nodes = [node_document("n1", report(15)), node_document("n2", report(15, 8))]
        self.pods = [pod_document("a", 3, node="n1"), pod_document("b", 0, node="n1"), pod_document("c", 2)]

    def call(self, request: Any) -> dict[str, Any]:
        if request.verb == "get":
            found = [node for node in self.nodes if request.path.endswith(f"/{node['metadata']['name']}")]
            if not found:
                raise ClusterError("there is no such node", status=404)
            return found[0]
        objects = self.nodes if request.resource == "nodes" else self.pods
        at = int(request.path.partition("continue=")[2] or 0)
        token = str(at + 1) if at + 1 < len(objects) else ""
        return {"items": objects[at : at + 1], "metadata": {"continue": token}}

    def follow(self, _request: object, _hear: object) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("named", "environment", "expected"),
    [
        pytest.param("/a", {"KUBECONFIG": "/b"}, "/a", id="what is named"),
        pytest.param("", {"KUBECONFIG": "/b", "KUBERNETES_SERVICE_HOST": "c"}, "/b", id="then KUBECONFIG"),
        pytest.param("", {"KUBERNETES_SERVICE_HOST": "c"}, "in-cluster", id="then the pod's account"),
        pytest.param("", {}, str(Path("~/.kube/config").expanduser()), id="then the user's own file"),
    ],
)
def test_where_the_credentials_are(named: str, environment: dict[str, str], expected: str) -> None:
    assert source_of(named, environment) == expected


def test_all_nodes_are_shown() -> None:
    lines = inspection(Api(), "", RESOURCE, is_detailed=False).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["n1", "n2"]
    assert lines[-1] == "3/38 (7%)"


def test_one_node_is_shown_with_its_pods() -> None:
    text = inspection(Api(), "n1", RESOURCE, is_detailed=True)
    assert "n2" not in text
    assert any(line.split() == ["a", "jobs", "0", "3"] for line in text.splitlines())


def test_a_node_that_is_not_there_is_an_expected_failure() -> None:
    with pytest.raises(ClusterError, match="no such node"):
        inspection(Api(), "n9", RESOURCE, is_detailed=False)


@pytest.mark.parametrize("verb", ["inspect", "gpushare-extender"])
def test_credentials_that_are_not_there_are_an_expected_failure(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [verb, "--kubeconfig", str(tmp_path / "none")]
    if verb == "gpushare-extender":
        arguments += ["--listen", "0.0.0.0:1"]
    assert main(arguments) == 1
    assert "hint:" in capsys.readouterr().err
