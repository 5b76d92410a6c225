"""A folder of a real procfs, covered: what is shown of it from inside, and what stays out of reach.

No machine without the driver has ``/proc/driver/nvidia``, so other folders of procfs stand in for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runtime_hook.container.operations.driverproc import MaskDriverProc
from runtime_hook.container.operations.files import BindFile
from runtime_hook.container.procmask import mask_parameters
from tests.runtime_hook.containers import host_mounts
from tests.runtime_hook.planhook import with_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.containers import Container

TTY = "/proc/tty"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        pytest.param(
            b"Mobile: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n",
            b"Mobile: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\n",
            id="in the middle",
        ),
        pytest.param(b"ModifyDeviceFiles: 0\n", b"ModifyDeviceFiles: 0\n", id="off already"),
        pytest.param(b"DeviceFileMode: 438\n", b"DeviceFileMode: 438\n", id="not there"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_the_driver_is_told_to_leave_device_files_alone(text: bytes, masked: bytes) -> None:
    assert mask_parameters(text) == masked


@pytest.mark.functional
@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("users", ["the host's", "its own"])
def test_only_what_is_shown_is_seen_and_nothing_can_be_changed(
    container: Callable[..., Container], runtime: str, users: str
) -> None:
    script = (
        f"cd {TTY}; ls . ldisc driver; cat ldiscs drivers | grep -c .;"
        "for name in new ldiscs driver/new; do (: > $name) 2>/dev/null && echo wrote $name; done;"
        f"grep ' {TTY}' /proc/self/mountinfo | cut -d ' ' -f 5,6"
    )
    made = container(["/bin/sh", "-c", script])
    notes = with_plan(made, [MaskDriverProc(("driver", "ldiscs"), TTY)])
    if users == "its own":
        _give_own_users(made)
    mounts, null = host_mounts(), Path("/dev/null").stat()
    done = made.run(runtime)
    assert Path("/dev/null").stat() == null, "crun once gave the host's own node to the container's root"
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(".:\ndriver\nldiscs\n\ndriver:\n"), done.stdout
    assert "wrote" not in done.stdout
    covers = [line.split() for line in done.stdout.splitlines() if line.startswith(TTY)]
    assert [path for path, _ in covers] == [TTY, f"{TTY}/driver", f"{TTY}/ldiscs"]
    assert all(options.startswith("ro,nosuid,nodev,noexec") for _, options in covers)
    assert notes.read_text() == ""
    assert host_mounts() == mounts


def _give_own_users(made: Container) -> None:
    """Put a container into a user namespace whose root is user 100000 of the host."""
    linux = made.config()["linux"]
    ids = [{"containerID": 0, "hostID": 100000, "size": 65536}]
    made.changes["linux"] = {
        **linux,
        "namespaces": [*linux["namespaces"], {"type": "user"}],
        "uidMappings": ids,
        "gidMappings": ids,
    }
    for path in (made.root, *made.root.rglob("*")):
        os.lchown(path, 100000, 100000)
    for path in (made.root, *made.root.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o001)


@pytest.mark.functional
def test_the_drivers_texts_are_copied(container: Callable[..., Container]) -> None:
    """``version`` is a text of the driver's folder and of the one that stands in for it."""
    made = container(["/bin/sh", "-c", "cd /proc/sys/kernel; ls; cat version"])
    with_plan(made, [MaskDriverProc(("random/poolsize",), "/proc/sys/kernel")])
    done = made.run()
    assert (done.returncode, done.stdout) == (0, f"random\nversion\n{os.uname().version}\n"), done.stderr


@pytest.mark.functional
@pytest.mark.parametrize(
    ("target", "options"),
    [
        pytest.param("/proc/driver/nvidia", [], id="no such folder in procfs"),
        pytest.param(TTY, ["subset=pid"], id="a procfs of processes alone"),
    ],
)
def test_where_nothing_is_to_hide_nothing_is_done(
    container: Callable[..., Container], target: str, options: list[str]
) -> None:
    made = container(["/bin/sh", "-c", "echo started"])
    notes = with_plan(made, [MaskDriverProc(("driver",), target)])
    proc = {"destination": "/proc", "type": "proc", "source": "proc", "options": options}
    made.changes["mounts"] = [proc, {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}]
    done = made.run()
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    assert notes.read_text() == ""


@pytest.mark.functional
def test_a_folder_that_cannot_be_shown_refuses_the_container(container: Callable[..., Container]) -> None:
    made = container(["/bin/sh", "-c", "echo started"])
    with_plan(made, [MaskDriverProc(("no-such-name",), TTY)])
    done = made.run()
    assert done.returncode != 0
    assert f"refused: cannot mask {TTY}, but for no-such-name" in done.stderr


@pytest.mark.functional
def test_a_later_failure_takes_the_cover_away(container: Callable[..., Container], tmp_path: Path) -> None:
    """The mandatory bind fails inside: the link that stands in its way is the image's."""
    made = container(["/bin/sh", "-c", "echo started"])
    source = tmp_path / "file"
    source.touch()
    (made.root / "usr/bin/way").symlink_to("nowhere")
    plan = [MaskDriverProc(("driver",), TTY), BindFile(str(source), "/usr/bin", "way", is_mandatory=True)]
    with_plan(made, plan)
    done = made.run()
    assert "the image has a symbolic link there" in done.stderr
    assert "could not be undone" not in done.stderr
