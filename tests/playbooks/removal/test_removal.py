"""A removal gives a node back as it was, says beforehand what it cannot, and may be killed anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.configuration import Service, apply_changes
from ansible_collections.grapnel.node.plugins.module_utils.file_set import FileText, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.host import Finished
from ansible_collections.grapnel.node.plugins.module_utils.removal.carry_out import carry_out
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    PLACE,
    Packages,
    read_originals,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import UNITS
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import (
    RemovalError,
    install,
    not_installed,
    packages_to_come,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import PARTS
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import document, find_removal

from tests.playbooks.fakes import Systemd

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.playbooks.fakes import Machine

ALL = frozenset(PARTS)
UNIT, DAEMON = "podman.service", "grapnel-node.service"
HOOKS, NODE_JSON = "/etc/oci/99-hook.json", "/etc/grapnel/node.json"
CONFFILES = """ /etc/docker.conf 0cc175b9c0f1b6a831c399e269772661
 /etc/default/docker 0cc175b9c0f1b6a831c399e269772661
"""
TIMER = "/etc/systemd/system/grapnel-drift.timer"
DAEMON_UNIT = f"/etc/systemd/system/{DAEMON}"


@pytest.fixture
def engine(machine: Machine) -> Systemd:
    for path in ("/etc/systemd/system", "/usr/lib", "/var/lib", "/run"):
        (machine.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for unit in (*UNITS["daemon"], *UNITS["hook"]):
        Systemd(machine, unit, active="inactive", enabled="")
        machine.teach(f"systemctl disable --now {unit}")
    machine.teach("systemctl show --property LoadState --value kubelet.service", "not-found\n")
    return Systemd(machine, UNIT, active="active", enabled="enabled")


def tree(root: Path) -> dict[str, str]:
    return {str(path): path.read_text() if path.is_file() else "" for path in sorted(root.rglob("*"))}


def write(machine: Machine, files: dict[str, str], unit: str = UNIT, engine: str = "podman") -> None:
    changes = find_changes(machine.host, [FileText(path, text, 0o644) for path, text in files.items()])
    apply_changes(machine.host, Service(unit, engine, True, bool(unit), 1.0), changes)


def set_up(machine: Machine) -> None:
    """Bring a node to what an apply leaves."""
    write(machine, {HOOKS: "ours\n", "/etc/main.conf": "theirs\nours\n"})
    write(machine, {NODE_JSON: "{}\n", DAEMON_UNIT: "[Unit]\n", TIMER: "[Timer]\n"}, unit="", engine="")
    machine.write("/var/lib/grapnel/drift/result.json", "{}\n")
    machine.write("/etc/grapnel/hook.json", "{}\n")
    for part in ("hook", "node"):
        machine.write(f"/usr/lib/grapnel/releases/{part}-0123/RELEASE", "0123\n")
        (machine.root / f"usr/lib/grapnel/{part}").symlink_to(f"releases/{part}-0123")
    machine.write("/var/lib/grapnel/node/health.json", "{}\n")
    machine.write("/run/grapnel/inventory.json", "{}\n")


def remove(machine: Machine, parts: Iterable[str] = ALL) -> None:
    wanted = frozenset(parts)
    carry_out(machine.host, find_removal(machine.host, wanted), wanted)


def test_everything_is_as_it_was(machine: Machine, engine: Systemd) -> None:
    machine.write("/etc/main.conf", "theirs\n")
    before = tree(machine.root)
    set_up(machine)

    remove(machine)

    assert tree(machine.root) == before
    assert f"systemctl restart {UNIT}" in machine.calls
    assert engine.active == "active"
    assert find_removal(machine.host, ALL).steps == ()


@pytest.mark.parametrize("kills", range(1, 25))
def test_a_removal_that_was_killed_is_done_by_the_next_one(machine: Machine, engine: Systemd, kills: int) -> None:
    assert engine
    machine.write("/etc/main.conf", "theirs\n")
    before = tree(machine.root)
    set_up(machine)
    left = kills

    def run(arguments: object, timeout_s: float) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return machine.host.run(arguments, timeout_s)  # type: ignore[arg-type] # as it came

    host = type(machine.host)(machine.root, run)  # type: ignore[arg-type] # the fake's own
    removal = find_removal(machine.host, ALL)
    try:
        carry_out(host, removal, ALL)
    except KeyboardInterrupt:
        remove(machine)

    assert tree(machine.root) == before


def test_one_part_leaves_the_others(machine: Machine, engine: Systemd) -> None:
    assert engine
    machine.write("/etc/main.conf", "theirs\n")
    set_up(machine)

    remove(machine, {"daemon"})

    assert machine.read("/etc/main.conf") == "theirs\nours\n"
    assert (machine.root / "usr/lib/grapnel/hook").exists()
    assert not (machine.root / NODE_JSON.lstrip("/")).exists()
    assert set(read_originals(machine.host).files) == {HOOKS, "/etc/main.conf"}


def test_the_hook_stays_while_the_engine_names_it(machine: Machine, engine: Systemd) -> None:
    assert engine
    set_up(machine)

    assert "add --runtime" in find_removal(machine.host, frozenset({"hook"})).problems[0]
    assert find_removal(machine.host, frozenset({"hook", "runtime"})).problems == ()


def test_an_engine_that_was_stopped_before_is_stopped_again(machine: Machine, engine: Systemd) -> None:
    engine.active, engine.enabled = "inactive", "disabled"
    set_up(machine)
    assert (engine.active, engine.enabled) == ("active", "enabled")

    remove(machine)

    assert (engine.active, engine.enabled) == ("inactive", "disabled")


@pytest.mark.parametrize(
    ("edit", "note"),
    [
        pytest.param((NODE_JSON, "{} "), "its text is kept as /etc/grapnel/node.json.saved", id="a file of ours"),
        pytest.param(("/etc/main.conf", None), "was deleted since", id="a file of theirs is gone"),
    ],
)
def test_what_cannot_be_given_back_is_said_first(
    machine: Machine, engine: Systemd, edit: tuple[str, str | None], note: str
) -> None:
    assert engine
    machine.write("/etc/main.conf", "theirs\n")
    set_up(machine)
    path, text = edit
    if text is None:
        (machine.root / path.lstrip("/")).unlink()
    else:
        machine.write(path, text)

    told = document(find_removal(machine.host, ALL))
    remove(machine)

    assert any(note in line for line in told["notes"])
    saved = machine.root / f"{path}.saved".lstrip("/")
    assert not saved.exists() if text is None else saved.read_text() == text


def test_an_edited_drop_in_of_crio_is_kept_where_crio_does_not_read_it(machine: Machine, engine: Systemd) -> None:
    assert engine
    drop_in = "/etc/crio/crio.conf.d/99-nvidia.conf"
    machine.write("/etc/crio/crio.conf.d/10-site.conf", "[crio]\n")
    write(machine, {drop_in: "[crio.runtime]\n"})
    machine.write(drop_in, "[crio.runtime]\npids_limit = 9\n")

    told = document(find_removal(machine.host, ALL))
    remove(machine)

    assert any("its text is kept as /etc/crio/99-nvidia.conf.saved" in note for note in told["notes"])
    assert [path.name for path in (machine.root / "etc/crio/crio.conf.d").iterdir()] == ["10-site.conf"]
    assert machine.read("/etc/crio/99-nvidia.conf.saved") == "[crio.runtime]\npids_limit = 9\n"


def teach_packages(machine: Machine, *, also: str = "", kubelet: str = "not-found") -> None:
    machine.teach("systemctl show --property LoadState --value kubelet.service", f"{kubelet}\n")
    machine.teach("dpkg-query --show", "installed")
    machine.teach("dpkg-query --show --showformat ${Conffiles}", CONFFILES)
    machine.teach("apt-get --simulate purge", f"Purg docker.io [26]\nPurg runc:amd64 [1.1]\n{also}")
    machine.teach("env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get")


def test_packages_that_came_with_an_engine_go_with_its_data(machine: Machine, engine: Systemd) -> None:
    assert engine
    teach_packages(machine)
    machine.teach("groupdel docker")
    remember_packages(
        machine.host, "docker", Packages(("docker.io", "runc"), ("/var/lib/docker",), ("docker", "other"))
    )
    machine.write("/var/lib/docker/image")
    machine.write("/etc/group", "root:x:0:\nother:x:7:ada\ndocker:x:8:\n")

    remove(machine)

    purged, deleted = (call for call in machine.calls if call.startswith(("groupdel", "env")))
    assert purged.endswith(" purge docker.io runc")
    assert deleted == "groupdel docker"
    assert not (machine.root / "var/lib/docker").exists()
    assert not (machine.root / PLACE.lstrip("/")).exists()


@pytest.mark.parametrize(
    ("also", "kubelet", "why"),
    [
        pytest.param(
            "Remv somebodys-tool [1]\n", "not-found", "somebodys-tool would go with it", id="needed by others"
        ),
        pytest.param("", "loaded", "the node has a kubelet", id="a kubelet"),
    ],
)
def test_an_engine_that_is_needed_stays(machine: Machine, engine: Systemd, also: str, kubelet: str, why: str) -> None:
    assert engine
    teach_packages(machine, also=also, kubelet=kubelet)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))

    removal = find_removal(machine.host, ALL)

    assert any(why in note for note in removal.notes)
    assert [step.action for step in removal.steps] == ["forget"]


def test_an_engine_with_running_containers_is_refused(machine: Machine, engine: Systemd) -> None:
    assert engine
    teach_packages(machine)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))
    machine.write("/proc/12/comm", "containerd-shim\n")

    assert "end them first" in find_removal(machine.host, ALL).problems[0]


def test_packages_that_were_there_before_are_not_counted(machine: Machine) -> None:
    machine.teach(
        "apt-get --simulate", "Inst runc (1.1 Debian:13 [amd64])\nInst libc6 [2.40] (2.41 Debian:13 [amd64])\n"
    )
    assert packages_to_come(machine.host, ["containerd"]) == ["runc"]

    machine.teach("apt-get --simulate", return_code=100, stderr="E: Unable to locate package containerd")
    with pytest.raises(RemovalError, match="Unable to locate"):
        packages_to_come(machine.host, ["containerd"])


def test_only_what_is_not_installed_to_the_end_is_installed(machine: Machine) -> None:
    machine.teach("dpkg-query --show", "runc installed\ncontainerd half-configured\n")
    machine.teach("env DEBIAN_FRONTEND=noninteractive", "")

    wanted = not_installed(machine.host, ["runc", "containerd", "podman"])
    install(machine.host, wanted, 120)

    assert wanted == ["containerd", "podman"]
    assert machine.calls[-1].endswith(" install containerd podman")
    assert "--no-install-recommends -o DPkg::Lock::Timeout=120" in machine.calls[-1]

    machine.teach("env DEBIAN_FRONTEND=noninteractive", return_code=100, stderr="E: Could not get lock")
    with pytest.raises(RemovalError, match="apt cannot install podman: E: Could not get lock"):
        install(machine.host, ["podman"], 120)


def test_what_a_release_without_records_has_left_goes_as_far_as_it_is_known(machine: Machine, engine: Systemd) -> None:
    assert engine
    Systemd(machine, "containerd.service", active="active", enabled="enabled")
    Systemd(machine, "docker.service", active="active", enabled="enabled")
    machine.write("/etc/containerd/conf.d/99-nvidia.toml", "# managed by grapnel: the next apply\n")
    machine.write("/etc/containerd/config.toml", 'imports = ["/etc/containerd/conf.d/*.toml"]\n')
    machine.write(
        "/etc/docker/daemon.json",
        '{\n  "bridge": "none",\n  "runtimes": {"nvidia": {"path": "/usr/lib/grapnel/hook/grapnel-runtime"}}\n}\n',
    )

    removal = find_removal(machine.host, ALL)

    assert {step.target for step in removal.steps if step.action in ("remove", "restore")} == {
        "/etc/containerd/conf.d/99-nvidia.toml",
        "/etc/docker/daemon.json",
    }
    assert [note.split()[0] for note in removal.notes] == ["/etc/containerd/config.toml", "/etc/docker/daemon.json"]
    assert find_removal(machine.host, frozenset({"daemon"})).notes == ()


def test_settings_that_somebody_wrote_himself_survive_the_packages(machine: Machine, engine: Systemd) -> None:
    assert engine
    teach_packages(machine)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))
    machine.write("/etc/docker.conf", "a")  # as the package brought it
    machine.write("/etc/default/docker", "theirs", mode=0o640)

    def purge() -> Finished:
        for path in ("etc/docker.conf", "etc/default/docker"):
            (machine.root / path).unlink()
        (machine.root / "etc/default").rmdir()
        return Finished(0)

    machine.teach("env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get", purge)
    remove(machine)

    assert machine.read("/etc/default/docker") == "theirs"
    assert (machine.root / "etc/default/docker").stat().st_mode & 0o777 == 0o640
    assert not (machine.root / "etc/docker.conf").exists()


def test_settings_survive_a_kill_between_the_packages_and_their_return(machine: Machine, engine: Systemd) -> None:
    assert engine
    teach_packages(machine)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))
    machine.write("/etc/default/docker", "theirs")

    def kill() -> Finished:
        (machine.root / "etc/default/docker").unlink()
        raise KeyboardInterrupt

    machine.teach("env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get", kill)
    with pytest.raises(KeyboardInterrupt):
        remove(machine, {"runtime"})
    machine.teach("dpkg-query --show", return_code=1)
    assert "/etc/default/docker" in {step.target for step in find_removal(machine.host, ALL).steps}
    remove(machine, {"runtime"})

    assert machine.read("/etc/default/docker") == "theirs"
    assert find_removal(machine.host, ALL).steps == ()
    assert not (machine.root / "var/lib/grapnel").exists()


def test_a_removal_that_was_killed_before_it_forgot_is_still_due(machine: Machine, engine: Systemd) -> None:
    assert engine
    machine.write("/etc/main.conf", "theirs\n")
    set_up(machine)
    record = machine.read(PLACE)
    remove(machine)
    machine.write(PLACE, record)

    assert {step.action for step in find_removal(machine.host, ALL).steps} == {"forget"}
    remove(machine)

    assert find_removal(machine.host, ALL).steps == ()


@pytest.mark.parametrize(
    ("modules", "calls"), [pytest.param(["nvidia"], 1, id="a driver"), pytest.param([], 0, id="no driver, no settings")]
)
@pytest.mark.usefixtures("engine")
def test_settings_of_gpus_are_given_back_while_the_program_is_there(
    machine: Machine, modules: list[str], calls: int
) -> None:
    set_up(machine)
    machine.write("/var/lib/grapnel/node/gpu-settings.json", "{}\n")
    machine.write("/usr/lib/grapnel/releases/node-0123/grapnel-node")
    for module in modules:
        machine.write(f"/sys/module/{module}/version", "580.95.05\n")
    asked: list[bool] = []

    def reset() -> Finished:
        asked.append((machine.root / "etc/grapnel/gpu-settings.json").exists())
        return Finished(1, "", "a gpu is lost")

    machine.teach("/usr/lib/grapnel/node/grapnel-node gpu-settings apply --json", reset)
    write(machine, {"/etc/grapnel/gpu-settings.json": "{}\n"}, unit="", engine="")
    steps = [(one.action, one.target) for one in find_removal(machine.host, ALL).steps]
    assert (("restore", "settings of GPUs") in steps) is bool(modules)
    remove(machine)
    assert asked == [False] * calls, "after the file is gone"
    assert not (machine.root / "usr/lib/grapnel").exists(), "what fails keeps nothing from being removed"


def test_settings_of_kubelet_and_kernel_are_given_back_by_an_apply_and_said_to_stay(
    machine: Machine, engine: Systemd
) -> None:
    assert engine
    machine.write("/etc/grapnel/tuning.json", "{}")

    assert "no section `node`" in " ".join(find_removal(machine.host, ALL).notes)
    remove(machine)

    assert machine.read("/etc/grapnel/tuning.json") == "{}"
