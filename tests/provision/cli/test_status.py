"""`grapnel status`: exit codes, JSON, one node, watching; and the words that a person reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.base.errors import UsageError
from provision.cli import main
from provision.cli.look.status import show_status, watch_status
from provision.cluster import LocalCluster, state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.standing import Members
from provision.rollout.model import ChangeKind, Phase
from provision.rollout.status.model import Seen, StackSeen, StackTrouble, Tenant
from tests.provision.contracts.schemas import CONTRACTS
from tests.provision.rollout.fakes import MINUTE, NOON, record, view
from tests.provision.rollout.status.test_derive import ADA, KILLED, NOW, TOOK, standing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.model import NodeView

SCHEMA = json.loads(CONTRACTS.joinpath("status", "schema.json").read_text())
DONE = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
FAILED = record(Phase.FAILED, failed_in=Phase.ROLLBACK, since=NOW - MINUTE, reason="3 of 4 GPUs answer")


@pytest.fixture(autouse=True)
def without_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as into a pipe; the workers of xdist have a width of their own."""
    monkeypatch.delenv("COLUMNS", raising=False)


def seen(*views: NodeView | NodeProblem, tenant: Tenant | None = ADA, **more: object) -> Seen:
    fields = {"place": "cluster test", "time": NOW, "nodes": {each.name: each for each in views}, **more}
    return Seen(tenant=tenant, **fields)  # type: ignore[arg-type]  # fields by name


@dataclass
class FakeReader:
    """Tells one look after the other; an error in the list is raised."""

    looks: list[Seen | Exception] = field(default_factory=list)
    on_look: Callable[[], None] = lambda: None

    def look(self) -> Seen:
        self.on_look()
        following = self.looks.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    def follow(self, timeout_s: float) -> Seen:
        assert timeout_s > 0
        return self.look()


def show(*looks: Seen | Exception, node: str | None = None, as_json: bool = False, watching: bool = False) -> int:
    reader, named = FakeReader(list(looks)), [] if node is None else [node]
    return watch_status(reader, named) if watching else show_status(reader, named, as_json=as_json)


DRAINING = seen(
    view("n1", DONE),
    view("n2", record(Phase.DRAIN, began=NOW - MINUTE, since=NOW - timedelta(seconds=10))),
    *(view(f"n{number}") for number in range(3, 41)),
    standing=standing(
        out=("n2",),
        n2="pod shop/web-7f9c still on the node",
        **{f"n{number}": "waits for n2: drain" for number in range(3, 41)},
    ),
)
PICTURE = """\
cluster test
ada@laptop/1 is at work, since 2026-05-04 12:00:00 UTC (10m00s)
40 nodes: 1 drain, 38 waiting, 1 done; about 1h11m left, measured on 1 node

drain  1 node: pods that have a GPU are evicted, within their disruption budgets
  n2  for 10s, out of service for 1m00s, about 1m39s left
    pod shop/web-7f9c still on the node
  next: release, when they are gone; failed, after drainTimeoutMinutes

waiting  38 nodes: it is in service and has yet to be upgraded
  n3 to n40
    waits for n2: drain
  next: its turn comes when the reason no longer holds

done  1 node: it is in service with the driver that was declared
  n1  for 9m00s, was out of service for 1m00s

nodes      driver
n1         535.309.01, by its record
n2 to n40  not known
not known: what is so of the machine now: no Node tells it \
(`--kubeconfig` names a cluster); `grapnel plan` and `grapnel drift` ask the machines themselves
"""


def read(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


def test_equal_nodes_read_like_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(DRAINING) == 0
    assert read(capsys) == PICTURE


OF_STACKS = """\
cluster test
ada@terminal is at work, since 2026-05-04 12:00:00 UTC (10m00s); it prepares, or has published nothing yet
no controller leads: stacks are as the last one has left them

2 stacks
  serving  Degraded  37/40  550.163.01  37 of 40 nodes as declared
    gpu07: 3 of 4 GPUs answer
    gpu08, gpu09: cannot be reached
  training  not looked at  no controller has looked at it yet
"""


def test_a_stack_whose_node_the_controller_runs_on_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(seen(stacks=(StackSeen(name="serving", state="AsDeclared", exposure="the controller runs on gpu07"),)))
    assert "\n  serving  AsDeclared" in (said := capsys.readouterr().out)
    assert "\n    the controller runs on gpu07\n" in said


def test_stacks_are_shown_with_what_is_said_of_their_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    serving = StackSeen(
        name="serving",
        state="Degraded",
        message="37 of 40 nodes as declared",
        driver="550.163.01",
        nodes={"total": 40, "asDeclared": 37},
        troubles=(
            StackTrouble("gpu07", "3 of 4 GPUs answer"),
            StackTrouble("gpu08", "cannot be reached"),
            StackTrouble("gpu09", "cannot be reached"),
        ),
    )
    looked = seen(tenant=replace(ADA, holder="ada@terminal"), stacks=(serving, StackSeen(name="training")))
    assert show(looked) == 1, "one of them needs somebody"
    assert read(capsys) == OF_STACKS
    assert show(looked, as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert [stack["name"] for stack in document["stacks"]] == ["serving", "training"]


@pytest.mark.parametrize(
    ("look", "code"),
    [
        (seen(view("n1", DONE)), 0),
        (seen(), 0),
        (seen(view("n1", FAILED)), 1),
        (seen(view("n1", record(Phase.SWAP)), tenant=KILLED), 1),
        (seen(view("n1"), tenant=None, standing=standing(n1="stopped: n0 failed in drain")), 1),
        (seen(view("n1"), view("n2", is_ready=False)), 1),
    ],
    ids=["done", "no nodes", "failed", "left", "not begun", "not ready"],
)
def test_the_exit_code_says_whether_somebody_is_needed(look: Seen, code: int) -> None:
    assert show(look) == code
    assert show(look, as_json=True) == code


def test_waves_under_way_tell_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    published = DRAINING.standing
    assert published is not None
    waves = (
        Members("wave 1 of 3 (canary)", ("n1",)),
        Members("wave 2 of 3", ("n2", "n3", "n4", "n50")),
        Members("wave 3 of 3", tuple(f"n{number}" for number in range(5, 41))),
    )
    racks = (Members("rack-7", ("n2",)),)
    look = replace(
        DRAINING,
        nodes={**DRAINING.nodes, "n50": view("n50", FAILED)},
        standing=replace(published, waves=waves, domains=racks),
    )

    show(look)
    assert [line for line in read(capsys).splitlines() if line.startswith("wave")] == [
        "wave 2 of 3: 0 of 4 done, 1 out of service, 1 failed"
    ]
    show(look, node="n2")
    assert "  wave       wave 2 of 3\n  domain     rack-7\n" in read(capsys)


def test_who_is_needed_comes_first_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    show(replace(DRAINING, nodes={**DRAINING.nodes, "n50": view("n50", FAILED)}))

    blocks = read(capsys).split("\n\n")
    assert blocks[1] == (
        "failed in rollback  1 node: quarantined: its upgrade failed, and so did the way back, "
        "or the former driver is not as it was; it stays cordoned. The reason has both\n"
        "  n50  for 1m00s, out of service for 10m00s\n"
        "    3 of 4 GPUs answer\n"
        "  next: the next run begins with it: drain again, or verify if it is as declared by then\n"
        "  do: `grapnel-driver status` on the node shows each step; repair or reboot it, "
        "then `grapnel apply n50`, or `grapnel rollback n50`"
    )


def test_where_a_controller_leads_it_is_said_what_works_there(capsys: pytest.CaptureFixture[str]) -> None:
    """It sent people to `grapnel apply`, which an idle controller refused."""
    leads = Tenant(holder="grapnel-controller-0", since=NOON, heard=NOW)
    look = seen(view("n1", FAILED), tenant=None, controller=leads)

    assert show(look) == 1
    said = " ".join(read(capsys).split())
    assert "nobody is at work grapnel-controller-0 is the leading controller since 2026-05-04 12:00:00 UTC" in said
    assert "next: it is not tried again by itself while its GpuStack declares the same" in said
    assert "repair or reboot it, then `grapnel retry n1`, or `grapnel rollback n1`" in said
    show(look, as_json=True)
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert (document["engine"], document["controller"]["holder"]) == (None, "grapnel-controller-0")
    assert "`grapnel apply`" not in document["states"]["failed-in-rollback"]["todo"]
    show(replace(look, controller=replace(leads, is_at_work=False)))
    assert "then `grapnel apply n1`, or `grapnel rollback n1`" in " ".join(read(capsys).split())


def test_reasons_that_differ_in_the_nodes_own_name_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {f"n{number}": f"n{number} is not ready: bring its kubelet back first" for number in range(1, 12)}
    show(seen(*(view(name, is_ready=False) for name in waiting), standing=standing(**waiting)))

    assert "  n1 to n11\n    NODE is not ready: bring its kubelet back first\n" in read(capsys)


def test_what_a_node_says_stays_on_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = replace(FAILED, reason="\x1b[2Jn2  done\nn3  done \u202e")
    show(seen(view("n1", hostile)))

    assert r"    \x1b[2Jn2  done\nn3  done \u202e" in read(capsys)


@pytest.mark.parametrize(
    ("tenant", "words"),
    [
        (None, "nobody is at work"),
        (KILLED, "ada@laptop/1 has the lease and was not heard of since 2026-05-04 12:02:00 UTC (8m00s)"),
        (ADA, "ada@laptop/1 is at work, since 2026-05-04 12:00:00 UTC (10m00s); it prepares"),
    ],
    ids=["nobody", "killed", "staging"],
)
def test_who_has_the_lease(tenant: Tenant | None, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(seen(view("n1"), tenant=tenant))

    assert words in " ".join(read(capsys).split())


def test_one_node_with_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    look = seen(view("n1", replace(FAILED, took={Phase.DRAIN: 31.0})), view("n2", is_ready=False))

    assert show(look, node="n1") == 1
    output = read(capsys)
    assert "n1: failed in rollback\n" in output
    assert "  reason     3 of 4 GPUs answer\n" in output
    assert "  took       drain 31s\n" in output
    assert "`grapnel rollback n1`" in " ".join(output.split())
    assert "n2" not in output


def test_one_node_with_what_holds_nothing_and_what_a_killed_engine_left(capsys: pytest.CaptureFixture[str]) -> None:
    planned = "somebody plans a maintenance of it (condition MaintenancePlanned, FirmwareUpdate)"
    look = seen(view("n1", DONE, remarks=(planned,), told=("GrapnelDriverUpgrade",)), tenant=KILLED)

    show(look, node="n1")
    output = " ".join(read(capsys).split())
    assert f"note {planned}" in output
    assert "note left by an engine that is gone: condition GrapnelDriverUpgrade; the next `grapnel apply`" in output
    show(look, as_json=True)
    (node,) = json.loads(read(capsys))["nodes"]
    assert [each.split(":")[0] for each in node["remarks"]] == [planned, "left by an engine that is gone"]


def test_a_returned_node_is_not_said_to_be_out_of_service(capsys: pytest.CaptureFixture[str]) -> None:
    returned = record(Phase.RETURNED, is_returning=True, failed_in=Phase.SWAP, reason="it broke", since=NOON + MINUTE)

    assert show(seen(view("n1", returned))) == 1
    assert "  n1  for 9m00s, was out of service for 1m00s\n" in read(capsys)


@pytest.mark.parametrize("phase", [Phase.SWAP, Phase.FAILED, Phase.DONE, Phase.RETURNED])
def test_a_node_that_changed_over_is_never_said_to_be_out_of_service(
    phase: Phase, capsys: pytest.CaptureFixture[str]
) -> None:
    over = record(phase, began=NOW - 10 * MINUTE, since=NOW - MINUTE, kind=ChangeKind.INTERFACE)
    show(seen(view("n1", over, is_cordoned=False)))
    shown = read(capsys)
    assert "for 1m00s" in shown
    assert "out of service for" not in shown


def test_why_one_node_waits_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    look = seen(view("n1"), tenant=ADA, standing=standing(n1="waits for n2: swap"))

    show(look, node="n1")
    assert "  reason     waits for n2: swap\n" in read(capsys), "it said: waits waits for n2"


def test_the_exit_code_is_about_the_one_node() -> None:
    assert show(seen(view("n1", FAILED), view("n2", DONE)), node="n2") == 0


def test_a_node_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(UsageError) as raised:
        show(seen(view("gpu-01"), view("gpu-02")), node="gpu01")

    assert raised.value.hint == "did you mean gpu-01?"


def test_watching_a_log_tells_what_changes_and_ends_with_the_upgrade(capsys: pytest.CaptureFixture[str]) -> None:
    later = replace(DRAINING, time=NOW + MINUTE)
    ended = seen(view("n1", DONE), view("n2", DONE), tenant=None)

    assert show(DRAINING, later, ended, watching=True) == 0
    output = read(capsys)
    assert output.startswith(PICTURE + "\n")
    assert output.removeprefix(PICTURE + "\n").startswith("cluster test\nnobody is at work\n2 nodes: 2 done\n")


def test_watching_waits_for_an_engine_and_outlives_a_silent_server(capsys: pytest.CaptureFixture[str]) -> None:
    idle = replace(DRAINING, tenant=None)
    silent = UnreachableError("cluster test does not answer")

    assert show(idle, DRAINING, silent, idle, watching=True) == 1
    assert "cluster test does not answer: trying again; this is what was seen last" in " ".join(read(capsys).split())


def test_leaving_the_watch_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def leave() -> None:
        if len(reader.looks) == 1:
            raise KeyboardInterrupt

    reader = FakeReader([DRAINING, DRAINING], leave)

    assert watch_status(reader) == 0
    assert read(capsys) == PICTURE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "XDG_STATE_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("grapnel.yaml").write_text(
        "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec:\n  driver: {version: '550.163.01'}\n"
    )
    tmp_path.joinpath("hosts.yaml").write_text("all: {hosts: {n1: {}, n2: {}}}\n")
    return tmp_path


def test_the_command_reads_the_state_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = inventory_key([str(folder / "hosts.yaml")], folder)
    cluster = LocalCluster(state_file_path(key, {"HOME": str(folder)}))
    cluster.observe(["n1"])
    cluster.write("n1", FAILED)

    assert main(["status"]) == 1
    output = read(capsys)
    assert "nobody is at work\n2 nodes: 1 failed in rollback, 1 no upgrade\n" in output
    assert main(["status", "n2", "--json"]) == 0


def test_json_and_watch_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "--watch"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err
