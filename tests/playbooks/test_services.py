from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import containerd_flaw
from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import (
    ConfigurationError,
    Service,
    apply_changes,
    pending_steps,
    rehearse,
    settle_timer,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, describe, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    is_daemon_reload_due,
    is_restart_due,
    mark_restart,
)

from tests.playbooks.fakes import Systemd

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

UNIT = "grapnel-node.service"
CONFIG = "/etc/grapnel/node.json"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
HANDLER = "/etc/containerd/conf.d/99-nvidia.toml"


def service(*, enabled: bool = True, restart: bool = True, engine: str = "") -> Service:
    return Service(unit=UNIT, engine=engine, enabled=enabled, restart=restart, timeout_s=2)


def changes(machine: Machine, text: str = "new", path: str = CONFIG) -> list:  # type: ignore[type-arg] # a test's table
    return find_changes(machine.host, [FileText(path, text, 0o644)])


def changing(machine: Machine) -> list[str]:
    return [call for call in machine.calls if " show " not in call and " reset-failed " not in call]


def no_sleep(_: float) -> None:
    """Time stands still."""


def test_files_as_declared_are_no_change(machine: Machine) -> None:
    machine.write(CONFIG, "new")

    assert changes(machine) == []


@pytest.mark.parametrize(("text", "mode"), [("old", 0o644), ("new", 0o664)], ids=["another text", "another mode"])
def test_files_that_differ_are_a_change(text: str, mode: int, machine: Machine) -> None:
    machine.write(CONFIG, text, mode=mode)

    (change,) = changes(machine)

    assert describe([change]) == [{"before_header": CONFIG, "after_header": CONFIG, "before": text, "after": "new"}]


def test_a_change_is_put_in_force_by_a_restart(machine: Machine) -> None:
    systemd = Systemd(machine, UNIT, active="active", enabled="enabled")
    systemd.is_broken = lambda: machine.read(CONFIG) != "new" or not is_restart_due(machine.host, UNIT)
    machine.write(CONFIG, "old")

    apply_changes(machine.host, service(), changes(machine), no_sleep)

    assert systemd.active == "active"
    assert not is_restart_due(machine.host, UNIT)
    assert "systemctl daemon-reload" not in machine.calls


def test_systemd_reads_units_again_only_when_one_changed(machine: Machine) -> None:
    Systemd(machine, UNIT, active="inactive", enabled="disabled")

    apply_changes(machine.host, service(restart=False), changes(machine, path=UNIT_FILE), no_sleep)

    enabled = f"systemctl --no-reload enable {UNIT}"
    assert changing(machine) == [enabled, "systemctl daemon-reload", f"systemctl start {UNIT}"]


def test_a_service_that_was_restarted_often_takes_the_next_change_in_too(machine: Machine) -> None:
    Systemd(machine, UNIT, active="active", enabled="enabled")

    for number in range(5):
        apply_changes(machine.host, service(), changes(machine, f"{number}"), no_sleep)

    assert machine.read(CONFIG) == "4"


def test_a_service_that_does_not_come_up_gets_its_old_files_back(machine: Machine) -> None:
    systemd = Systemd(machine, UNIT, active="active", enabled="enabled")
    machine.write(CONFIG, "old", mode=0o640)
    systemd.is_broken = lambda: machine.read(CONFIG) == "new"

    with pytest.raises(ConfigurationError, match=r"is failed; the files were put back, and .* works with them"):
        apply_changes(machine.host, service(), changes(machine), no_sleep)

    assert machine.read(CONFIG) == "old"
    assert (machine.root / CONFIG.lstrip("/")).stat().st_mode & 0o777 == 0o640
    assert systemd.active == "active"
    assert not is_restart_due(machine.host, UNIT)


def test_a_file_that_was_not_there_is_gone_after_a_failure(machine: Machine) -> None:
    systemd = Systemd(machine, UNIT, active="active", enabled="enabled")
    place = machine.root / CONFIG.lstrip("/")
    systemd.is_broken = place.exists

    with pytest.raises(ConfigurationError):
        apply_changes(machine.host, service(), changes(machine), no_sleep)

    assert not place.exists()
    assert list(place.parent.iterdir()) == []


def test_a_service_that_fails_either_way_says_so_and_stays_marked(machine: Machine) -> None:
    systemd = Systemd(machine, UNIT, active="active", enabled="enabled")
    systemd.is_broken = lambda: True

    with pytest.raises(ConfigurationError, match="files were put back, but"):
        apply_changes(machine.host, service(), changes(machine), no_sleep)

    assert is_restart_due(machine.host, UNIT)


def test_a_failure_quotes_what_the_service_said_last_and_no_secret(machine: Machine) -> None:
    systemd = Systemd(machine, UNIT, active="active", enabled="enabled")
    systemd.is_broken = lambda: machine.read(CONFIG) == "new"
    machine.write(CONFIG, "old")
    machine.write("/etc/containerd/config.toml", 'auth = "hunter2hunter2"\n', mode=0o600)
    said = "\n".join([*(f"line {number}" for number in range(9)), "bad value hunter2hunter2", ""])
    machine.teach(f"journalctl --unit {UNIT}", said)

    with pytest.raises(ConfigurationError) as raised:
        apply_changes(machine.host, service(engine="containerd"), changes(machine), no_sleep)

    assert "is failed; its log ends with: line 5 | line 6 | line 7 | line 8 | bad value …; the files" in str(
        raised.value
    )


def test_a_restart_that_a_killed_run_left_due_is_made_up_for(machine: Machine) -> None:
    Systemd(machine, UNIT, active="active", enabled="enabled")
    mark_restart(machine.host, UNIT)

    assert pending_steps(machine.host, service(restart=False)) == ["restart"]


def test_units_that_a_killed_run_has_written_are_read_before_the_restart_that_it_left(machine: Machine) -> None:
    """The service was restarted with what systemd had read before, and nothing told of that any more."""
    Systemd(machine, UNIT, active="active", enabled="enabled")

    def be_killed() -> Finished:
        raise KeyboardInterrupt

    machine.teach("systemctl daemon-reload", be_killed)
    with pytest.raises(KeyboardInterrupt):
        apply_changes(machine.host, service(), changes(machine, path=UNIT_FILE), no_sleep)
    machine.teach("systemctl daemon-reload")
    machine.calls.clear()

    assert changes(machine, path=UNIT_FILE) == []
    apply_changes(machine.host, service(restart=False), [], no_sleep)

    assert changing(machine) == ["systemctl daemon-reload", f"systemctl restart {UNIT}"]
    assert not is_daemon_reload_due(machine.host)


def test_a_daemon_is_reloaded_once_its_program_has_read_the_new_files(machine: Machine) -> None:
    Systemd(machine, UNIT, active="active", enabled="enabled")
    machine.write(LAUNCHER)
    machine.teach(f"{LAUNCHER} config", lambda: Finished(0, machine.read(CONFIG)))
    reloading = Service(unit=UNIT, engine="", enabled=True, restart=True, timeout_s=2, reload=True)

    apply_changes(machine.host, reloading, changes(machine), no_sleep)

    told = [call for call in machine.calls if " show " not in call]
    assert told == [f"{LAUNCHER} config --config {CONFIG}", f"systemctl reload {UNIT}"]
    assert not is_restart_due(machine.host, UNIT)


def test_files_that_the_daemon_would_not_take_in_are_put_back_and_told(machine: Machine) -> None:
    """A daemon that is reloaded with a bad file goes on with its former one, and only its journal says so."""
    Systemd(machine, UNIT, active="active", enabled="enabled")
    machine.write(LAUNCHER)
    machine.write(CONFIG, "old")
    refused = Finished(1, stderr="node.json: unknown key 'x'")
    machine.teach(f"{LAUNCHER} config", lambda: refused if machine.read(CONFIG) == "new" else Finished(0))
    reloading = Service(unit=UNIT, engine="", enabled=True, restart=True, timeout_s=2, reload=True)

    with pytest.raises(ConfigurationError, match=r"unknown key 'x'; the files were put back"):
        apply_changes(machine.host, reloading, changes(machine), no_sleep)

    assert machine.read(CONFIG) == "old"


def test_a_service_that_takes_its_files_in_by_itself_is_reloaded(machine: Machine) -> None:
    systemd = Systemd(machine, UNIT, active="active", enabled="enabled")
    reloading = Service(unit=UNIT, engine="", enabled=True, restart=True, timeout_s=2, reload=True)

    apply_changes(machine.host, reloading, changes(machine), no_sleep)

    assert [call for call in machine.calls if " show " not in call] == [f"systemctl reload {UNIT}"]
    assert (machine.read(CONFIG), systemd.active) == ("new", "active")
    assert not is_restart_due(machine.host, UNIT)


def test_files_of_an_engine_that_is_no_service_are_only_written(machine: Machine) -> None:
    nobody = Service(unit="", engine="podman", enabled=True, restart=False, timeout_s=2)
    made = changes(machine, path="/etc/containers/oci/hooks.d/99-grapnel.json")

    rehearse(machine.host, nobody, made)
    apply_changes(machine.host, nobody, made, no_sleep)

    assert machine.read("/etc/containers/oci/hooks.d/99-grapnel.json") == "new"
    assert machine.calls == []


@pytest.mark.parametrize(
    ("active", "enabled", "wanted", "steps"),
    [
        ("active", "enabled", True, []),
        ("inactive", "disabled", True, ["enable", "start"]),
        ("failed", "enabled", True, ["start"]),
        ("active", "enabled", False, ["disable", "stop"]),
        ("inactive", "", False, []),
    ],
)
def test_steps_follow_from_the_units_state(
    active: str,
    enabled: str,
    wanted: bool,  # noqa: FBT001 - a column of the table
    steps: list[str],
    machine: Machine,
) -> None:
    Systemd(machine, UNIT, active=active, enabled=enabled)

    assert pending_steps(machine.host, service(enabled=wanted, restart=False)) == steps


def test_a_rehearsal_that_fails_changes_nothing(machine: Machine) -> None:
    machine.write("/etc/containerd/config.toml", "version = 2\n")
    machine.write("/usr/bin/containerd", mode=0o755)
    machine.teach("unshare --mount", return_code=1, stderr="containerd: failed to load TOML: line 3\n")

    with pytest.raises(ConfigurationError, match="nothing was changed: containerd: failed to load TOML: line 3"):
        rehearse(machine.host, service(engine="containerd"), changes(machine, path=HANDLER))

    assert not (machine.root / HANDLER.lstrip("/")).exists()


def test_a_rehearsal_is_held_with_the_engine_that_is_configured(machine: Machine) -> None:
    drop_in = "/etc/crio/crio.conf.d/99-nvidia.conf"
    machine.write("/etc/crio/crio.conf.d/10-crio.conf")
    machine.write("/usr/bin/crio", mode=0o755)
    machine.teach("unshare --mount", return_code=1, stderr='level=fatal msg="invalid runtime_path"\n')

    with pytest.raises(
        ConfigurationError, match=r"crio does not accept .* nothing was changed: .*invalid runtime_path"
    ):
        rehearse(machine.host, service(engine="crio"), changes(machine, path=drop_in))

    (call,) = machine.calls
    assert call.endswith("/crio /etc/crio /usr/bin/crio config")


def test_files_that_containerd_does_not_read_need_no_rehearsal(machine: Machine) -> None:
    machine.write("/etc/containerd/config.toml")
    machine.write("/usr/bin/containerd", mode=0o755)

    rehearse(machine.host, service(engine="containerd"), changes(machine))

    assert machine.calls == []


PLUGINS = """TYPE                            ID        PLATFORMS    STATUS
io.containerd.snapshotter.v1    btrfs     linux/amd64  skip
io.containerd.tracing.v1        otlp      -            error
{}
"""


@pytest.mark.parametrize(
    ("row", "is_failure"),
    [
        ("io.containerd.grpc.v1           cri       linux/amd64    ok", False),
        ("io.containerd.grpc.v1           cri       linux/amd64    error", True),
        ("io.containerd.cri.v1            runtime   linux/amd64    error", True),
        ("io.containerd.grpc.v1           tasks     linux/amd64    error", False),
    ],
)
def test_containerd_without_its_cri_plugin_is_of_no_use(row: str, is_failure: bool, machine: Machine) -> None:  # noqa: FBT001 - a table's column
    machine.write("/usr/bin/ctr", mode=0o755)
    machine.teach("/usr/bin/ctr", PLUGINS.format(row))

    assert (containerd_flaw(machine.host) is not None) is is_failure


def test_a_service_is_waited_for_until_it_answers(machine: Machine) -> None:
    Systemd(machine, UNIT, active="inactive", enabled="enabled")
    machine.write("/usr/bin/ctr", mode=0o755)
    answers = iter([Finished(1, stderr="ctr: connection refused\n"), Finished(0, PLUGINS), Finished(0, PLUGINS)])
    machine.teach("/usr/bin/ctr", lambda: next(answers))
    naps: list[float] = []

    apply_changes(machine.host, service(engine="containerd"), [], naps.append)

    assert len(naps) == 1


def test_a_service_that_keeps_silent_is_given_up_on(machine: Machine) -> None:
    Systemd(machine, UNIT, active="inactive", enabled="enabled")
    machine.write("/usr/bin/ctr", mode=0o755)
    machine.teach("/usr/bin/ctr", return_code=1, stderr="ctr: connection refused\n")
    naps: list[float] = []

    with pytest.raises(ConfigurationError, match="connection refused"):
        apply_changes(machine.host, service(engine="containerd"), [], naps.append)

    assert len(naps) == 4


TIMER = "grapnel-drift.timer"


@pytest.mark.parametrize(
    ("enabled", "active", "was", "steps"),
    [
        pytest.param(True, "inactive", "disabled", ["enable", "start"], id="runs with its service"),
        pytest.param(True, "active", "enabled", [], id="runs already"),
        pytest.param(False, "active", "enabled", ["disable", "stop"], id="stops with its service"),
    ],
)
def test_a_timer_follows_its_service(machine: Machine, enabled: bool, active: str, was: str, steps: list[str]) -> None:  # noqa: FBT001 - a table
    Systemd(machine, TIMER, active=active, enabled=was)
    assert settle_timer(machine.host, service(enabled=enabled), TIMER) == steps
    assert changing(machine) == [f"systemctl {step} {TIMER}" for step in steps]
    assert not is_restart_due(machine.host, TIMER)
