"""The kubelet's settings are exchanged while it is stopped, and given back where it does not come up with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests import peers
from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import Kubelet, Waiting

UNIT = "kubelet.service"
MAIN = "/var/lib/kubelet/config.yaml"
FOLDER = "/etc/kubernetes/kubelet.conf.d"
OURS = f"{FOLDER}/99-grapnel.conf"
STATE = ("/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state")
COMMAND = ["/usr/bin/kubelet", f"--config={MAIN}", "--config-dir", FOLDER, "--v=2"]


class Service:
    """A kubelet behind ``systemctl``: settings that hold the word ``refused`` do not let it come up."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.active, self.pid = "active", 100
        self.started: list[str] = []
        self.flaps = False
        machine.teach(f"systemctl show --property LoadState,ActiveState,MainPID {UNIT}", self.show)
        machine.teach(f"systemctl stop {UNIT}", self.stop)
        machine.teach(f"systemctl start {UNIT}", self.start)
        machine.teach(f"systemctl reset-failed {UNIT}")
        machine.teach("journalctl", 'I1 fine\nE2 run.go:72] "command failed" err="no such policy"\n')
        machine.teach("/usr/bin/kubelet", "", return_code=1, stderr='err="cannot exit on lock file contention: no"')
        self.show()

    def show(self) -> Any:
        pid = self.pid if self.active == "active" else 0
        if self.active == "active":
            self.machine.write(f"/proc/{pid}/cmdline", "\0".join(COMMAND) + "\0")
            self.pid += self.flaps
        return finished(f"LoadState=loaded\nActiveState={self.active}\nMainPID={pid}\n")

    def stop(self) -> Any:
        self.active = "inactive"
        return finished("")

    def start(self) -> Any:
        settings = self.settings()
        left = [path for path in STATE if (self.machine.root / path[1:]).exists()]
        self.started.append(f"{settings} {'with' if left else 'without'} state")
        self.active = "failed" if "refused" in settings else "active"
        self.pid += 1
        for path in STATE:
            self.machine.write(path, f"of {settings}")
        return finished("")

    def settings(self) -> str:
        place = self.machine.root / OURS[1:]
        return place.read_text().strip() if place.exists() else "none"


def finished(text: str) -> Any:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished  # noqa: PLC0415 - see conftest

    return Finished(0, text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.write(MAIN, "kind: KubeletConfiguration\n")
    for path in STATE:
        machine.write(path, "of none")
    return machine


def kubelet() -> Kubelet:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import Kubelet  # noqa: PLC0415 - see conftest

    return Kubelet(UNIT, "/var/lib/kubelet", "127.0.0.1:10248", timeout_s=5, settle_s=2)


def waiting(answer: str = "") -> Waiting:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import Waiting  # noqa: PLC0415 - see conftest

    return Waiting(sleep=lambda _: None, ask=lambda _: answer)


def changes(machine: Machine, content: str = "static\n") -> list[FileDifference]:
    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (  # noqa: PLC0415 - see conftest
        find_changes,
        parse_files,
    )

    return find_changes(machine.host, parse_files([{"path": OURS, "content": content, "mode": "0644"}]))


def exists(machine: Machine, path: str) -> bool:
    return (machine.root / path[1:]).exists()


def apply(machine: Machine, content: str = "static\n", answer: str = "") -> list[str]:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import (  # noqa: PLC0415 - see conftest
        apply_settings,
    )

    return apply_settings(machine.host, kubelet(), changes(machine, content), waiting(answer))


def test_the_state_is_gone_before_the_kubelet_starts_with_other_settings(machine: Machine) -> None:
    service = Service(machine)

    removed = apply(machine)

    assert removed == list(STATE)
    assert service.started == ["static without state"]
    assert service.active == "active"
    assert not exists(machine, f"/run/grapnel/restart/{UNIT}")
    assert not exists(machine, "/var/lib/grapnel/kubelet-place.json")


def test_a_kubelet_that_does_not_come_back_gets_its_former_settings(machine: Machine) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import KubeletError  # noqa: PLC0415

    service = Service(machine)

    with pytest.raises(KubeletError, match=r"no such policy.*put back, and kubelet.service works with them"):
        apply(machine, "refused\n")

    assert service.started == ["refused without state", "none without state"]
    assert service.active == "active"
    assert not exists(machine, OURS)
    assert not exists(machine, f"/run/grapnel/restart/{UNIT}")


def test_a_kubelet_whose_process_changes_all_the_time_does_not_work(machine: Machine) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import KubeletError  # noqa: PLC0415

    service = Service(machine)
    service.flaps = True

    with pytest.raises(KubeletError, match="does not stay up: its process changes"):
        apply(machine)


def test_a_kubelet_that_runs_and_does_not_answer_does_not_work(machine: Machine) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import KubeletError  # noqa: PLC0415

    Service(machine)

    with pytest.raises(KubeletError, match="healthz does not answer"):
        apply(machine, answer="http://127.0.0.1:10248/healthz does not answer")

    assert exists(machine, f"/run/grapnel/restart/{UNIT}")  # neither the new settings nor the former ones work


def test_nothing_changes_where_the_kubelet_cannot_be_stopped(machine: Machine) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import KubeletError  # noqa: PLC0415

    Service(machine)
    machine.teach(f"systemctl stop {UNIT}", "", return_code=1, stderr="job timed out")

    with pytest.raises(KubeletError, match=r"could not be stopped \(job timed out\)"):
        apply(machine)

    assert not exists(machine, OURS)
    assert all(exists(machine, path) for path in STATE)


def test_a_run_that_is_killed_while_the_kubelet_is_stopped_leaves_a_note_of_its_place(machine: Machine) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import read_kubelet  # noqa: PLC0415

    service = Service(machine)

    def die() -> Any:
        service.stop()
        raise KeyboardInterrupt

    machine.teach(f"systemctl stop {UNIT}", die)
    with pytest.raises(KeyboardInterrupt):
        apply(machine)

    told = read_kubelet(machine.host, UNIT)

    assert told is not None
    assert (told["active"], told["config"], told["config_dir"]) == ("inactive", MAIN, FOLDER)
    assert told["restart_due"]
    assert told["flags"] == ["config", "config-dir", "v"]

    machine.teach(f"systemctl stop {UNIT}", service.stop)
    apply(machine)
    assert service.started == ["static without state"]


def test_the_service_is_known_from_what_was_changed_where_it_is_declared_no_more(machine: Machine) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import (  # noqa: PLC0415 - see conftest
        read_kubelet,
        settings_files,
    )

    Service(machine)
    assert read_kubelet(machine.host, "") is None

    machine.write("/etc/grapnel/kubelet.json", json.dumps({"version": 1, "unit": UNIT}))
    machine.write(f"{FOLDER}/10-site.conf", "x")
    machine.write(f"{FOLDER}/README", "x")
    told = read_kubelet(machine.host, "")

    assert told is not None
    assert told["unit"] == UNIT
    assert settings_files(machine.host, told) == [MAIN, f"{FOLDER}/10-site.conf"]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('err="failed to run Kubelet: cannot exit on lock file contention: no lock file specified"', ""),
        (
            'err="failed to validate kubelet configuration, error: invalid configuration: policy \\"x\\""',
            'failed to validate kubelet configuration, error: invalid configuration: policy "x"',
        ),
        ("unknown flag: --exit-on-lock-contention", ""),
        ("", ""),
    ],
    ids=["valid", "refused", "a kubelet without the option", "no answer"],
)
def test_the_kubelet_judges_its_settings_before_they_are_written(machine: Machine, said: str, refused: str) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import parse_place  # noqa: PLC0415
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.rehearsal import refusal  # noqa: PLC0415

    Service(machine)
    machine.write(f"{FOLDER}/10-site.conf", "x")
    machine.teach("/usr/bin/kubelet", "", return_code=1, stderr=said)

    assert refusal(machine.host, parse_place(COMMAND), changes(machine)) == refused
    assert not exists(machine, OURS)


@pytest.mark.parametrize("written", ["--containerd=/run/c.sock", "--containerd"])
def test_a_kubelet_whose_new_program_does_not_know_a_flag_of_its_command_line_is_not_stopped(
    machine: Machine, written: str
) -> None:
    """As cAdvisor's, from Kubernetes 1.37 on: the one that runs was started before its program was exchanged."""
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import parse_place  # noqa: PLC0415
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.rehearsal import rehearse  # noqa: PLC0415
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import KubeletError  # noqa: PLC0415

    service = Service(machine)
    said = 'E1 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --containerd"'
    machine.teach("/usr/bin/kubelet --version", "", return_code=1, stderr=said)
    place = parse_place([*COMMAND, written])

    with pytest.raises(KubeletError, match="nothing was changed: /usr/bin/kubelet does not know --containerd, "):
        rehearse(machine.host, place, changes(machine), restarts=True)
    assert f"/usr/bin/kubelet --version --config={MAIN} --config-dir={FOLDER} --v=2 {written}" in machine.calls
    assert (service.active, exists(machine, OURS)) == ("active", False)

    rehearse(machine.host, place, changes(machine), restarts=False)  # nothing is restarted: it may run on


@pytest.mark.parametrize(
    ("arguments", "config", "folder", "root"),
    [
        (["kubelet"], "", "", "/var/lib/kubelet"),
        (["kubelet", "--config=/a//b", "--root-dir=/r"], "/a/b", "", "/r"),
        (["kubelet", "--config", "/a", "--config-dir=/d", "--config=/c"], "/c", "/d", "/var/lib/kubelet"),
        (["kubelet", "--config=relative", "--config-dir"], "", "", "/var/lib/kubelet"),
        (["kubelet", "--config_dir=/d", "--root_dir", "/r"], "", "/d", "/r"),
    ],
    ids=["no flags", "values behind an equals sign", "the last one counts", "no absolute paths", "underscores"],
)
def test_the_command_line_says_where_settings_are(
    machine: Machine, arguments: list[str], config: str, folder: str, root: str
) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import parse_place  # noqa: PLC0415

    place = parse_place(arguments)

    assert (place.config, place.config_dir, place.root_dir) == (config, folder, root)
    assert machine.calls == []


@pytest.mark.parametrize("way", ["status line", "headers", "continue"])
def test_who_answers_in_its_place_without_end_is_given_up(way: str) -> None:
    """Any process may have the port of a stopped kubelet: a byte now and then held the run on its node for ever."""
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import ask_health  # noqa: PLC0415

    with peers.peer(peers.ENDLESS[way]) as port:
        address = f"127.0.0.1:{port}"
        assert ask_health(address, 0.3) == f"http://{address}/healthz does not answer: timed out"


def test_a_kubelet_is_asked_how_it_is() -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import ask_health  # noqa: PLC0415

    for status, said in ((b"200 OK", ""), (b"500 x", "answers 500")):
        with peers.peer(peers.saying(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)) as port:
            assert ask_health(f"127.0.0.1:{port}").endswith(said)
    assert ask_health("127.0.0.1:1").endswith("Connection refused")
    assert ask_health("") == ""
