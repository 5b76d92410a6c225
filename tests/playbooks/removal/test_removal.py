"""A removal gives a node back as it was, says beforehand what it cannot, and may be killed anywhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HOME, STAGED
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import MARK
from ansible_collections.grapnel.node.plugins.module_utils.machine.commands import link_command
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.removal.carry_out import carry_out
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    PLACE,
    Packages,
    read_originals,
    remember_held,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import RemovalError
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import document, find_removal

from tests.playbooks.fakes import Systemd
from tests.playbooks.removal.node import (
    ALL,
    HOOKS,
    NODE_JSON,
    UNIT,
    remove,
    set_up,
    teach_packages,
    tree,
    write,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine


def test_everything_is_as_it_was(machine: Machine, engine: Systemd) -> None:
    machine.write("/etc/main.conf", "theirs\n")
    before = tree(machine.root)
    set_up(machine)

    remove(machine)

    assert tree(machine.root) == before
    assert f"systemctl restart {UNIT}" in machine.calls
    assert engine.active == "active"
    assert find_removal(machine.host, ALL).steps == ()


@pytest.mark.usefixtures("engine")
def test_what_is_staged_of_an_engine_goes_and_what_a_killed_trial_left_in_it(machine: Machine) -> None:
    before = tree(machine.root)
    set_up(machine)
    machine.write("/usr/bin/docker", mode=0o755)
    machine.write(f"{HOME}/{MARK}", "docker")
    machine.write(f"{STAGED}/there/docker.rpm", "a package")
    machine.teach("docker")
    machine.teach("docker image ls", return_code=1)

    with pytest.raises(RemovalError, match=r"docker does not answer.*: start docker, or remove"):
        remove(machine)
    machine.teach("docker image ls")
    remove(machine)

    (machine.root / "usr/bin/docker").unlink()
    (machine.root / "usr/bin").rmdir()
    assert tree(machine.root) == before
    assert "docker image rm --force grapnel-trial" in machine.calls


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
        carry_out(host, removal, ALL, Clock())
    except KeyboardInterrupt:
        remove(machine)

    assert tree(machine.root) == before


def test_what_an_exchange_of_the_engine_left_behind_that_was_killed_goes(machine: Machine, engine: Systemd) -> None:
    assert engine
    before = tree(machine.root)
    set_up(machine)
    machine.write("/var/lib/grapnel/engine/there/containerd.deb")
    machine.write("/var/lib/grapnel/engine/trial/bin/sh", mode=0o755)
    remove(machine)
    assert tree(machine.root).keys() - before.keys() <= {str(machine.root / "etc/main.conf")}


def test_what_was_mounted_for_mps_is_unmounted_before_its_folder_goes(machine: Machine, engine: Systemd) -> None:
    assert engine
    set_up(machine)
    places = ["/run/grapnel/mps/GPU-0/shm", "/run/grapnel/mps/GPU-0/log"]
    others = ["/run/grapnel-other", "/run/lock"]
    machine.write("/proc/self/mounts", "".join(f"tmpfs {place} tmpfs rw 0 0\n" for place in (*places, *others)))
    machine.teach("umount")
    remove(machine)
    assert [call for call in machine.calls if call.startswith("umount")] == [
        f"umount -- {place}" for place in reversed(places)
    ]


def test_commands_go_with_their_part_and_those_of_others_stay(machine: Machine, engine: Systemd) -> None:
    assert engine
    set_up(machine)
    machine.write("/usr/local/sbin/grapnel-hook", "somebody's own")
    for part in ("hook", "node"):
        link_command(machine.host, part)

    remove(machine)

    assert [path.name for path in (machine.root / "usr/local/sbin").iterdir()] == ["grapnel-hook"]
    assert machine.read("/usr/local/sbin/grapnel-hook") == "somebody's own"


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
    shown = [step.action for step in find_removal(machine.host, ALL).steps if step.target == UNIT]

    remove(machine)

    assert (engine.active, engine.enabled) == ("inactive", "disabled")
    assert shown == ["disable", "stop"], "a restart was shown"


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


def test_a_text_that_is_kept_is_nobody_elses_to_read_or_to_send_elsewhere(
    machine: Machine, engine: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user read a password out of a file that only root may read, and a link led out of the folder."""
    assert engine
    set_up(machine)
    machine.write(NODE_JSON, "a password").chmod(0o600)
    victim = machine.write("/etc/victim", "untouched")
    saved = machine.root / f"{NODE_JSON}.saved".lstrip("/")
    saved.symlink_to(victim)
    opened: list[tuple[str, int]] = []
    really = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_CREAT:
            opened.append((os.fspath(path), mode))
        return really(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    remove(machine)

    assert (saved.read_text(), saved.is_symlink(), saved.stat().st_mode & 0o777) == ("a password", False, 0o600)
    assert victim.read_text() == "untouched"
    assert {mode for path, mode in opened if "node.json" in path} == {0o600}


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


STATUS = "Package: {}\nStatus: hold ok installed\nVersion: 1\n\n"


def test_what_grapnel_holds_is_let_go_and_nothing_else(machine: Machine, engine: Systemd) -> None:
    assert engine
    names = ("containerd", "docker.io", "dpkg")
    machine.write("/var/lib/dpkg/status", "".join(STATUS.format(name) for name in names))
    machine.write("/usr/bin/apt-get", mode=0o755)
    remember_held(machine.host, ["containerd"], held=True)
    machine.teach("apt-mark unhold")

    told = document(find_removal(machine.host, ALL))["steps"]
    assert [one["target"] for one in told if one["action"] == "unhold"] == ["containerd"]
    remove(machine)

    assert [call for call in machine.calls if call.startswith("apt-mark")] == ["apt-mark unhold containerd"]
    assert read_originals(machine.host).held == ()


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
