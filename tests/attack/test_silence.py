"""Nodes that never answer, or never cease to: they cost their own row and a bounded time.

The product waits minutes for a node. Here a copy of it waits seconds: the same files with a few numbers changed.
"""

from __future__ import annotations

import json
import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from tests.attack.attacks import HONEST, Attack, Harm
from tests.attack.conftest import GOOD_CODES
from tests.attack.further import LABORIOUS
from tests.attack.stand_ins import StandIns, name_of
from tests.journey.conftest import ROOT, Controller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional

IMPATIENCE = {
    "playbooks/facts.yml": ("timeout: 300", "timeout: 8"),
    "playbooks/roles/grapnel/tasks/plan.yml": ("timeout: 300", "timeout: 8"),
    "provision/apply/planner_process/limits.py": ("cpu_s: int = 10", "cpu_s: int = 2"),
}
ASLEEP = Attack(name="sleeps for an hour", harm=Harm.BUG, sleep_s=3600, is_told=True)
ENDLESS = Attack(name="never ceases", harm=Harm.BUG, instead=b"y\n" * 32_768, is_endless=True, is_told=True)
ENDLESS_JSON = Attack(
    name="an endless list", harm=Harm.BUG, instead=b'{"facts": {"more": [' + b"[],", is_endless=True, is_told=True
)
LATE = Attack(name="answers two seconds late", harm=Harm.PLAUSIBLE, sleep_s=2)
ENDLESS_WORK = tuple(
    Attack(name=name, harm=Harm.PLAUSIBLE, values=values, is_told=True) for name, values in LABORIOUS.items()
)
ATTACKS = (ASLEEP, ENDLESS, ENDLESS_JSON, LATE, *ENDLESS_WORK)


@pytest.fixture
def _impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This checkout with seconds in the place of minutes."""
    copy = tmp_path / "checkout"
    for part in ("provision", "playbooks"):
        shutil.copytree(ROOT / part, copy / part, symlinks=True)
    for name, (patient, impatient) in IMPATIENCE.items():
        path = copy / name
        text = path.read_text()
        assert text.count(patient) == 1, name
        path.write_text(text.replace(patient, impatient))
    monkeypatch.setenv("PYTHONPATH", str(copy))


@pytest.fixture
def silent() -> Iterator[dict[str, object]]:
    """A machine whose ssh daemon takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = "-F none -o ConnectTimeout=2 -o BatchMode=yes -o UserKnownHostsFile=/dev/null"
        yield {"ansible_host": "127.0.0.1", "ansible_port": server.getsockname()[1], "ansible_ssh_args": arguments}


@pytest.mark.usefixtures("_impatient")
def test_nodes_without_end_are_told_by_name_and_the_others_are_planned(
    tmp_path: Path, silent: dict[str, object]
) -> None:
    controller = Controller(tmp_path / "operator")
    controller.folder.mkdir()
    controller.declare()
    gone = {"ansible_host": "127.0.0.99", "ansible_port": 9, "ansible_ssh_args": "-F none -o ConnectTimeout=2"}
    fleet = StandIns(controller, machines={"silent": silent, "gone": gone})
    fleet.prepare(ATTACKS)

    done = fleet.grapnel("plan", "--json")

    assert done.returncode in GOOD_CODES, done.stderr
    document = json.loads(done.stdout)
    rows = {row["node"]: row for row in (*document["plans"], *document["failures"])}
    assert {node for node, row in rows.items() if row.get("problems") == []} == {HONEST, name_of(LATE)}
    assert {node for node, row in rows.items() if row.get("status") == "unreachable"} == {"silent", "gone"}
    assert rows.keys() == {HONEST, "silent", "gone", *map(name_of, ATTACKS)}
