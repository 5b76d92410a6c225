"""`grapnel init` where there are machines: a fleet in memory, and an address where nobody answers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.apply.playbooks import Playbooks
from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.base.errors import GrapnelError
from provision.cli import main
from provision.cli.declare.init import write_declaration
from provision.cli.declare.init_machines import LOOK_S, Lookout, look_and_write, require_no_declarations
from provision.declaration.fleet.endpoint import Endpoint
from provision.declaration.fleet.inventory import Host, Inventory
from provision.declaration.spec.template import render_first_keys
from provision.planning.planner.plan import plan_node
from provision.planning.supply.payload.store import Manifest, ManifestFile, write_manifest
from tests.provision.draft.test_draft_fleet import NODES
from tests.provision.samples import PAYLOAD, make_facts, replace

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from provision.apply.runner import Event, RunRequest
    from provision.declaration.fleet.facts.node import NodeFacts


class Recorded:
    """Answers for nodes with recorded facts; one without is not reachable."""

    def __init__(self, nodes: Mapping[str, NodeFacts | None]) -> None:
        self.nodes = nodes
        self.requests: list[RunRequest] = []

    def run(self, request: RunRequest, _cancel: threading.Event) -> Iterator[Event]:
        self.requests.append(request)
        for node, facts in self.nodes.items():
            if facts is None:
                yield TaskDone(node, "gather", TaskOutcome.UNREACHABLE, message="no route to host")
            else:
                yield TaskDone(node, "gather", TaskOutcome.OK, values={"facts": msgspec.json.encode(facts)})
        yield RunFinished(RunStatus.SUCCESSFUL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def look(nodes: Mapping[str, NodeFacts | None], **options: Any) -> tuple[int, Recorded]:
    runner = Recorded(nodes)
    args = argparse.Namespace(**{"file": Path("grapnel.yaml"), "force": False, "json": False, **options})
    playbooks = Playbooks(collection=Path("/collection"), inventory=(str(Path("hosts").absolute()),))
    lookout = Lookout(runner, playbooks, lambda facts, stack: plan_node(facts, stack, PAYLOAD))
    return look_and_write(lookout, list(nodes), args, options.get("write", write_declaration)), runner


def test_one_kind_of_node_is_one_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, runner = look({"n1": NODES["n1"], "n2": NODES["n2"]})

    assert code == 0
    assert [each.name for each in folder.iterdir()] == ["grapnel.yaml"]
    assert "apply changes nothing on 2 nodes" in capsys.readouterr().out
    assert [request.extra_vars for request in runner.requests] == [{"grapnel_mig_nodes": ["n1", "n2"]}]
    assert [request.timeout_s for request in runner.requests] == [LOOK_S]


def test_nodes_that_differ_are_in_a_second_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look({"n1": NODES["n1"], "d1": NODES["d1"]})

    assert {each.name for each in folder.iterdir()} == {"grapnel.yaml", "grapnel-groups.yaml"}
    assert "grapnel plan -f grapnel.yaml -i hosts -i grapnel-groups.yaml" in capsys.readouterr().out


def test_a_node_that_cannot_be_reached_is_named_and_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = look({"n1": NODES["n1"], "n9": None})

    assert code == 1
    assert "n9: left out: no route to host" in capsys.readouterr().out
    assert "n9" not in folder.joinpath("grapnel.yaml").read_text()


@pytest.mark.parametrize("as_json", [False, True])
def test_where_nobody_answers_the_first_keys_are_written(
    folder: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    code, _ = look({"n8": None, "n9": None}, json=as_json)

    assert code == 1
    assert folder.joinpath("grapnel.yaml").read_text() == render_first_keys()
    assert [each.name for each in folder.iterdir()] == ["grapnel.yaml"]
    out = capsys.readouterr().out
    if as_json:
        assert [each["node"] for each in json.loads(out)["failures"]] == ["n8", "n9"]
    else:
        assert "n8: left out: no route to host" in out
        assert "n9: left out: no route to host" in out


def test_where_the_declaration_cannot_be_written_its_groups_do_not_stay(folder: Path) -> None:
    def write(path: Path, text: str, *, force: bool) -> None:
        if path.name == "grapnel.yaml":
            path.write_text("somebody else's")  # meanwhile
        write_declaration(path, text, force=force)

    with pytest.raises(GrapnelError, match="already exists"):
        look({"n1": NODES["n1"], "d1": NODES["d1"]}, write=write)
    assert {each.name: each.read_text() for each in folder.iterdir()} == {"grapnel.yaml": "somebody else's"}


@pytest.mark.slow
@pytest.mark.parametrize("inventory", [True, False], ids=["of the folder's inventory", "named without one"])
def test_machines_are_asked_without_being_told_to(
    folder: Path, capsys: pytest.CaptureFixture[str], *, inventory: bool
) -> None:
    """Nobody listens at that port, so that each is refused at once."""
    reached = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    if inventory:
        folder.joinpath("inventory.yaml").write_text(json.dumps({"all": {"hosts": {"n1": reached, "n2": reached}}}))

    payload = folder / "payload"
    payload.mkdir()
    payload.joinpath("archive").write_bytes(b"archive")
    archive = ManifestFile(name="archive", digest="0" * 12, size_bytes=7)
    write_manifest(payload, Manifest(hook=archive, node={"3.10": archive}, unit="[Service]\n", driver=archive))

    named = [] if inventory else ["127.0.0.1:1", "localhost:1"]
    assert main(["init", "--payload", "payload", *named]) == 1

    out = capsys.readouterr().out
    assert out.count("left out: ") == 2
    assert folder.joinpath("grapnel.yaml").read_text() == render_first_keys()


@pytest.mark.parametrize("there", ["grapnel.yaml", "grapnel-groups.yaml"])
def test_a_file_that_is_there_stays(there: str, folder: Path) -> None:
    folder.joinpath(there).write_text("mine")

    with pytest.raises(GrapnelError, match="already exists"):
        look({"n1": NODES["n1"], "d1": NODES["d1"]})
    assert [each.name for each in folder.iterdir()] == [there]
    assert folder.joinpath(there).read_text() == "mine"


def test_force_writes_over_both(folder: Path) -> None:
    for name in ("grapnel.yaml", "grapnel-groups.yaml"):
        folder.joinpath(name).write_text("mine")

    assert look({"n1": NODES["n1"], "d1": NODES["d1"]}, force=True)[0] == 0
    assert "mine" not in folder.joinpath("grapnel.yaml").read_text()


def test_json_has_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    product = replace(make_facts(), product_files=("/usr/bin/nvidia-docker",))
    look({"n1": NODES["n1"], "d1": NODES["d1"], "p1": product, "n9": None}, json=True)

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "grapnel.dev/draft/v1alpha1"
    assert document["written"] == ["grapnel.yaml", "grapnel-groups.yaml"]
    assert [each["nodes"] for each in document["groups"]] == [["n1"], ["d1"], ["p1"]]
    of_docker = next(each for each in document["nodes"] if each["node"] == "d1")
    assert [each["key"] for each in of_docker["offers"]] == ["runtime.enabled", "plugin.enabled"]
    assert [each["code"] for each in of_docker["unsaid"]] == ["default-runtime"]
    assert next(each for each in document["nodes"] if each["node"] == "p1")["products"] == [
        {"code": "nvidia-docker2", "page": "docs/migrate/nvidia-docker2.md", "found": ["/usr/bin/nvidia-docker"]}
    ]
    assert [each["node"] for each in document["failures"]] == ["n9"]


@pytest.mark.parametrize(
    ("hosts", "groups", "words"),
    [
        ((Host("n1", (), Endpoint(""), {"driver": {}}),), {}, "host n1"),
        ((Host("n1", ("gpu",), Endpoint("")),), {"gpu": {"driver": {}}}, "group gpu"),
    ],
)
def test_a_fleet_that_is_declared_already_is_refused(
    hosts: tuple[Host, ...], groups: dict[str, object], words: str
) -> None:
    with pytest.raises(GrapnelError, match=f"{words} of the inventory"):
        require_no_declarations(Inventory(hosts, groups))


def test_options_about_machines_want_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--json"]) == 2
    assert "`--inventory`" in capsys.readouterr().err
