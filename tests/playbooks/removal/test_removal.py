"""A removal gives a node back as it was, says beforehand what it cannot, and may be killed anywhere."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HOME, STAGED
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import MARK
from ansible_collections.grapnel.node.plugins.module_utils.machine.commands import link_command
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import MODULE_PATH
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

from plugin.dra.domains.driver import FOLDER as DOMAIN_CLAIMS
from plugin.dra.others.driver import FOLDER as OTHER_CLAIMS
from plugin.dra.store import FOLDER as CLAIMS
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


CDI = '{"containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "%s"}]}}'
OUR_HOOK = "/usr/lib/grapnel/hook/grapnel-hook"


def test_the_file_for_cdi_goes_from_where_the_hook_s_configuration_has_it(machine: Machine, engine: Systemd) -> None:
    assert engine
    set_up(machine)
    machine.write("/etc/grapnel/hook.json", '{"cdi": "/srv/cdi/ours.json"}\n')
    machine.write("/srv/cdi/ours.json", CDI % OUR_HOOK)
    remove(machine)
    assert list((machine.root / "srv/cdi").iterdir()) == []


def test_what_an_exchange_of_the_engine_left_behind_that_was_killed_goes(machine: Machine, engine: Systemd) -> None:
    assert engine
    before = tree(machine.root)
    set_up(machine)
    machine.write("/var/lib/grapnel/engine/there/containerd.deb")
    machine.write("/var/lib/grapnel/engine/trial/bin/sh", mode=0o755)
    remove(machine)
    assert tree(machine.root).keys() - before.keys() <= {str(machine.root / "etc/main.conf")}


def test_the_files_of_claims_go_with_the_daemon(machine: Machine, engine: Systemd) -> None:
    """Those of other devices and of IMEX channels have no hook, and their kinds of device are grapnel's alone."""
    assert engine
    set_up(machine)
    machine.write("/etc/grapnel/node.json", '{"cdiFolder": "/srv/cdi"}\n')
    machine.write("/srv/cdi/grapnel-claims.json", CDI % OUR_HOOK)
    machine.write("/srv/cdi/grapnel-devices.json", '{"kind": "grapnel.dev/device", "devices": []}')
    machine.write("/srv/cdi/grapnel-domains.json", '{"kind": "grapnel.dev/channel", "devices": []}')
    machine.write("/srv/cdi/theirs.json", CDI % "/usr/bin/nvidia-cdi-hook")
    remove(machine)
    assert [path.name for path in (machine.root / "srv/cdi").iterdir()] == ["theirs.json"]


def prepared(machine: Machine, *claims: str, folder: str = OTHER_CLAIMS) -> None:
    for claim in claims:
        text = json.dumps({"namespace": "ml", "name": claim}) if claim != "damaged" else "{"
        machine.write(f"/var/lib/grapnel/node/{folder}/{claim}.json", text)


@pytest.mark.parametrize("folder", [CLAIMS, OTHER_CLAIMS, DOMAIN_CLAIMS])
def test_claims_of_each_driver_of_the_daemon_keep_it(machine: Machine, engine: Systemd, folder: str) -> None:
    """Those of ComputeDomains did not: a pod with a channel was left without the daemon."""
    assert engine
    set_up(machine)
    prepared(machine, "train", folder=folder)
    now = [0.0]
    clock = Clock(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(RemovalError, match=r"ml/train\. Their pods end only while"):
        remove(machine, clock=clock)


def test_the_daemon_stays_while_a_claim_is_prepared(machine: Machine, engine: Systemd) -> None:
    """A pod that no drain evicts could not end any more: nobody took its claim back."""
    assert engine
    set_up(machine)
    prepared(machine, "agent", "damaged")
    before, now = tree(machine.root), [0.0]
    clock = Clock(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(RemovalError, match=r"/other-claims/damaged.json, ml/agent\. Their pods end only while"):
        remove(machine, clock=clock)
    assert tree(machine.root) == before
    assert "claims are prepared on the node (2)" in str(find_removal(machine.host, ALL).notes)
    remove(machine, {"runtime", "hook"}, clock)


@pytest.mark.parametrize("folder", ["claims", "other-claims", "domain-claims"])
def test_claims_that_a_kubelet_gives_back_soon_are_waited_for(machine: Machine, engine: Systemd, folder: str) -> None:
    assert engine
    set_up(machine)
    prepared(machine, "train", folder=folder)
    claim = machine.root / f"var/lib/grapnel/node/{folder}/train.json"
    remove(machine, clock=Clock(sleep=lambda _seconds: claim.unlink()))
    assert not (machine.root / "var/lib/grapnel/node").exists()


def test_a_file_with_the_name_of_that_of_other_devices_stays_where_others_made_it(
    machine: Machine, engine: Systemd
) -> None:
    assert engine
    set_up(machine)
    machine.write("/var/run/cdi/grapnel-devices.json", '{"kind": "example.com/device", "devices": []}')
    remove(machine)
    assert [path.name for path in (machine.root / "var/run/cdi").iterdir()] == ["grapnel-devices.json"]


@pytest.mark.parametrize("named", ["/srv/data", "/srv/data/theirs.json", "/srv/data/link", "/srv/data/note", "/srv/"])
def test_nothing_else_goes_that_a_hook_s_configuration_names(machine: Machine, engine: Systemd, named: str) -> None:
    """A folder that was named there by mistake went with all that was in it."""
    assert engine
    set_up(machine)
    machine.write("/etc/grapnel/hook.json", f'{{"cdi": "{named}"}}\n')
    machine.write("/srv/data/theirs.json", CDI % "/usr/bin/nvidia-cdi-hook")
    machine.write("/srv/data/note", "a note\n")
    machine.write("/srv/ours.json", CDI % OUR_HOOK)
    (machine.root / "srv/data/link").symlink_to("../ours.json")
    before = tree(machine.root / "srv")
    remove(machine)
    assert tree(machine.root / "srv") == before
    assert (machine.root / "srv/data/link").is_symlink()


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


@pytest.mark.parametrize("kills", range(1, 4))
def test_selinux_has_nothing_of_grapnels_afterwards(machine: Machine, engine: Systemd, kills: int) -> None:
    """Whenever the removal is killed, the next one finds the module that the policy still has."""
    modules = machine.root / "var/lib/selinux/targeted/active/modules/400"
    modules.mkdir(parents=True)
    machine.write("/usr/sbin/semodule", mode=0o755)
    before = tree(machine.root)
    set_up(machine)
    assert engine.active == "active"
    write(machine, {MODULE_PATH: "(type grapnel_gpu_device_t)\n"})
    (modules / "grapnel").mkdir()
    killed = iter(range(kills))

    def semodule() -> Finished:
        if next(killed, None) is not None:
            return Finished(1, stderr="killed\n")
        (modules / "grapnel").rmdir()
        return Finished(0)

    machine.teach("semodule --remove grapnel", semodule)
    told = document(find_removal(machine.host, ALL))["steps"]
    assert ("hook", "remove", "SELinux module grapnel") in [(one["part"], one["action"], one["target"]) for one in told]
    for _ in range(kills):
        with pytest.raises(RemovalError, match="semodule --remove grapnel failed"):
            remove(machine)
    remove(machine)

    assert tree(machine.root) == before
    assert find_removal(machine.host, ALL).steps == ()


@pytest.fixture
def policy(machine: Machine, engine: Systemd) -> Machine:
    """A node with grapnel's module in its policy, and the tool that takes it out."""
    set_up(machine)
    assert engine.active == "active"
    machine.write("/usr/sbin/semodule", mode=0o755)
    machine.write("/var/lib/selinux/targeted/active/modules/400/grapnel/cil")
    return machine


def test_the_policy_is_left_before_the_tools_go_that_came_with_an_engine(policy: Machine) -> None:
    """container-selinux brings policycoreutils, and goes with the engine that it came with."""
    teach_packages(policy)
    remember_packages(policy.host, "docker", Packages(("docker.io", "runc")))
    policy.teach("semodule --remove grapnel")

    remove(policy)

    purged = next(at for at, call in enumerate(policy.calls) if call.startswith("env DEBIAN_FRONTEND"))
    assert policy.calls.index("semodule --remove grapnel") < purged


def test_a_policy_that_nothing_can_change_any_more_keeps_its_module_and_that_is_said(policy: Machine) -> None:
    """SELinux was switched off and its tools were removed: no second removal would do better."""
    (policy.root / "usr/sbin/semodule").unlink()

    removal = find_removal(policy.host, ALL)
    remove(policy)

    assert "no semodule" in " ".join(removal.notes)
    assert not any(call.startswith("semodule") for call in policy.calls)
    assert not (policy.root / "usr/lib/grapnel").exists()


def test_the_policy_keeps_its_module_while_the_hook_stays(machine: Machine, engine: Systemd) -> None:
    set_up(machine)
    assert engine.active == "active"
    write(machine, {MODULE_PATH: "(type grapnel_gpu_device_t)\n"})
    machine.write("/var/lib/selinux/targeted/active/modules/400/grapnel/cil")
    targets = [one["target"] for one in document(find_removal(machine.host, ALL - {"hook"}))["steps"]]
    assert MODULE_PATH not in targets
    assert "SELinux module grapnel" not in targets
