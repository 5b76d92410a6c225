from __future__ import annotations

import base64
import errno
import hashlib
import os
import tarfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.commands import our_command
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.installation import (
    InstallationError,
    install_part,
    install_units,
    installed_digest,
    read_installations,
    read_inventory,
    unpacked_content,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.playbooks.fakes import Machine

HOME = "usr/lib/grapnel"


def digest(letter: str) -> str:
    return letter * 64


def make_archive(folder: Path, text: str) -> str:
    script = folder / "grapnel-hook"
    script.write_text(text)
    script.chmod(0o755)
    path = folder / f"{text}.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(script, "grapnel-hook")
    return str(path)


@pytest.fixture
def node(tmp_path: Path) -> Host:
    root = tmp_path / "node"
    root.mkdir()
    return Host(root)


def current(node: Host) -> str:
    return node.path(f"/{HOME}/hook/grapnel-hook").read_text()


def test_a_release_is_unpacked_and_made_current(node: Host, tmp_path: Path) -> None:
    install_part(node, "hook", digest("a"), make_archive(tmp_path, "one"))

    assert current(node) == "one"
    assert read_installations(node) == {"driver": None, "hook": {"digest": digest("a")}, "node": None}
    assert os.access(node.path(f"/{HOME}/hook/grapnel-hook"), os.X_OK)
    assert (node.root / HOME / "hook").stat().st_mode & 0o777 == 0o755


def test_a_release_is_labelled_before_it_is_current_where_selinux_is_on(machine: Machine, tmp_path: Path) -> None:
    """An engine that starts the hook meanwhile would not be let."""
    for path in ("/sys/fs/selinux/enforce", "/usr/sbin/restorecon"):
        machine.write(path, "1", mode=0o755)
    link = machine.root / HOME / "hook"
    linked: list[bool] = []

    def restorecon() -> Finished:
        linked.append(link.is_symlink())
        return Finished(0)

    (machine.root / HOME / "releases").mkdir(parents=True)
    machine.teach("tar")
    machine.teach("/usr/bin/python3")
    machine.teach("restorecon", restorecon)
    install_part(machine.host, "hook", digest("a"), make_archive(tmp_path, "one"))

    assert linked == [False]
    (told,) = (call for call in machine.calls if call.startswith("restorecon"))
    assert told.split()[-1] == str(link.readlink()).join(("/usr/lib/grapnel/", ""))


def test_a_release_is_compiled_before_it_is_current(node: Host, tmp_path: Path) -> None:
    module = tmp_path / "part.py"
    module.write_text("VALUE = 1\n")
    with tarfile.open(tmp_path / "part.tar", "w") as archive:
        archive.add(module, "runtime_hook/part.py")

    install_part(node, "hook", digest("a"), str(tmp_path / "part.tar"))

    (compiled,) = node.path(f"/{HOME}/hook/runtime_hook/__pycache__").iterdir()
    flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
    assert flags == 0b01  # PEP 552: by hash, not checked against the source
    assert f"/{HOME}/releases/hook-{'a' * 12}/runtime_hook/part.py".encode() in compiled.read_bytes()


@pytest.mark.slow
def test_a_hook_is_packed_before_it_is_current(node: Host, tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "runtime_hook"
    with tarfile.open(tmp_path / "hook.tar", "w") as archive:
        archive.add(source, "runtime_hook", filter=lambda entry: None if "__pycache__" in entry.name else entry)
        archive.add(source / "launcher.py", "grapnel-hook")

    install_part(node, "hook", digest("a"), str(tmp_path / "hook.tar"))

    (packed,) = node.path(f"/{HOME}/hook").glob("grapnel-hook.cpython-*")
    assert packed.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#!/usr/bin/python3.11 -IS", {"python": "/usr/bin/python3.11"}),
        ("#!/usr/bin/python3 -IS", {}),
        ("#!/usr/local/bin/python3.11 -IS", {}),
    ],
)
def test_it_is_told_what_starts_a_part(node: Host, tmp_path: Path, line: str, told: dict[str, str]) -> None:
    make = tmp_path / "grapnel-node"
    make.write_text(f"{line}\nprint()\n")
    with tarfile.open(tmp_path / "node.tar", "w") as archive:
        archive.add(make, "grapnel-node")
    install_part(node, "node", digest("a"), str(tmp_path / "node.tar"))
    assert read_installations(node)["node"] == {"digest": digest("a"), **told}


@pytest.mark.slow
def test_a_part_is_started_and_compiled_with_the_interpreter_that_was_chosen(node: Host, tmp_path: Path) -> None:
    """On RHEL 9 the node daemon was started with Python 3.9, beside which python3.11 was installed."""
    launcher, shell = tmp_path / "grapnel-hook", tmp_path / "grapnel-runtime"
    launcher.write_text("#!/usr/bin/python3 -IS\n# by #!/usr/bin/python3 \n")
    shell.write_text("#!/bin/sh\n")
    for path in (launcher, shell):
        path.chmod(0o755)
    with tarfile.open(tmp_path / "hook.tar", "w") as archive:
        for path in (launcher, shell):
            archive.add(path, path.name)
    calls: list[str] = []

    def run(arguments: Sequence[str], timeout_s: float) -> Finished:
        calls.append(" ".join(arguments[:3]))
        return node.run(arguments, timeout_s) if arguments[0] == "tar" else Finished(0)

    watched = Host(node.root, run)
    install_part(watched, "hook", digest("a"), str(tmp_path / "hook.tar"))
    assert current(node) == launcher.read_text()

    install_part(watched, "hook", digest("a"), str(tmp_path / "hook.tar"), "/usr/bin/python3.11")

    assert current(node) == "#!/usr/bin/python3.11 -IS\n# by #!/usr/bin/python3 \n"
    assert node.path(f"/{HOME}/hook/grapnel-runtime").read_text() == "#!/bin/sh\n"
    assert os.access(node.path(f"/{HOME}/hook/grapnel-hook"), os.X_OK)
    assert read_installations(node)["hook"] == {"digest": digest("a"), "python": "/usr/bin/python3.11"}
    assert node.names(f"/{HOME}/releases") == [f"hook-{'a' * 12}", f"hook-{'a' * 12}-python3.11"]
    programs = [call.partition(" ")[0] for call in calls]
    assert programs == ["tar", "/usr/bin/python3", "tar", "/usr/bin/python3.11"]


def test_no_other_interpreter_is_taken(node: Host, tmp_path: Path) -> None:
    with pytest.raises(InstallationError, match=r"/usr/local/bin/python3\.11 is not one of"):
        install_part(node, "hook", digest("a"), make_archive(tmp_path, "one"), "/usr/local/bin/python3.11")


@pytest.mark.slow
def test_a_part_is_a_command_of_roots_shell(node: Host, tmp_path: Path) -> None:
    node.path("/usr/local/sbin").mkdir(parents=True)
    install_part(node, "hook", digest("a"), make_archive(tmp_path, "one"))
    command = node.path("/usr/local/sbin/grapnel-hook")
    assert str(command.readlink()) == "/usr/lib/grapnel/hook/grapnel-hook"
    install_part(node, "hook", digest("b"), make_archive(tmp_path, "two"))
    assert str(command.readlink()) == "/usr/lib/grapnel/hook/grapnel-hook"
    assert our_command(node, "hook") == ["/usr/local/sbin/grapnel-hook"]


def test_a_program_of_that_name_stays(node: Host, tmp_path: Path) -> None:
    command = node.path("/usr/local/sbin/grapnel-hook")
    command.parent.mkdir(parents=True)
    command.write_text("somebody's own")
    install_part(node, "hook", digest("a"), make_archive(tmp_path, "one"))
    assert command.read_text() == "somebody's own"
    assert our_command(node, "hook") == []


def test_the_former_release_is_kept_and_older_ones_go(node: Host, tmp_path: Path) -> None:
    for letter in "abc":
        install_part(node, "hook", digest(letter), make_archive(tmp_path, letter))
        os.utime(node.path(f"/{HOME}/releases/hook-{letter * 12}"), (ord(letter), ord(letter)))
    install_part(node, "node", digest("d"), make_archive(tmp_path, "d"))

    assert node.names(f"/{HOME}/releases") == [f"hook-{'b' * 12}", f"hook-{'c' * 12}", f"node-{'d' * 12}"]


@pytest.mark.slow
def test_going_back_needs_no_archive(node: Host, tmp_path: Path) -> None:
    for letter in "ab":
        install_part(node, "hook", digest(letter), make_archive(tmp_path, letter))

    install_part(node, "hook", digest("a"), "/nowhere.tar")

    assert current(node) == "a"


@pytest.mark.slow
def test_an_archive_that_is_cut_short_leaves_the_old_release_working(node: Host, tmp_path: Path) -> None:
    install_part(node, "hook", digest("a"), make_archive(tmp_path, "one"))
    cut = tmp_path / "cut.tar"
    cut.write_bytes((tmp_path / "one.tar").read_bytes()[:700])

    with pytest.raises(InstallationError, match=r"cut\.tar cannot be unpacked"):
        install_part(node, "hook", digest("b"), str(cut))

    assert current(node) == "one"
    assert read_installations(node)["hook"] == {"digest": digest("a")}


def test_what_a_killed_run_left_is_cleared_away(node: Host, tmp_path: Path) -> None:
    half = node.path(f"/{HOME}/releases/hook-{'a' * 12}")
    half.mkdir(parents=True)  # no RELEASE in it: never finished
    beside = node.path(f"/{HOME}/releases/.hook-{'a' * 12}.xyz")
    beside.mkdir()
    node.path(f"/{HOME}/.hook.new").symlink_to("releases/nowhere")

    install_part(node, "hook", digest("a"), make_archive(tmp_path, "one"))

    assert current(node) == "one"
    assert not beside.exists()


@pytest.mark.parametrize("text", ["", "{", "[]"], ids=["empty", "cut short", "something else"])
def test_an_unreadable_inventory_is_no_inventory(text: str, machine: Machine) -> None:
    machine.write("/run/grapnel/inventory.json", text)

    assert read_inventory(machine.host) is None


def test_the_inventory_tells_its_driver(machine: Machine) -> None:
    machine.write("/run/grapnel/inventory.json", '{"driver_version": "550.163.01"}')

    assert read_inventory(machine.host) == {"driver_version": "550.163.01"}


UNITS = ["grapnel-inventory.service", "grapnel-inventory.path"]


def teach_units(machine: Machine, *, enabled: str) -> None:
    states = "\n".join(f"UnitFileState={enabled}\nActiveState=inactive\n" for _ in UNITS)
    machine.teach(f"systemctl show --property UnitFileState,ActiveState {' '.join(UNITS)}", states)
    machine.teach(f"systemctl enable --now {' '.join(UNITS)}")
    machine.teach("systemctl daemon-reload")
    (machine.root / "etc/systemd/system").mkdir(parents=True)


def told(machine: Machine) -> list[str]:
    return [call for call in machine.calls if " show " not in call]


def test_units_of_a_part_are_linked_and_started_with_one_reload_of_systemd(machine: Machine) -> None:
    teach_units(machine, enabled="")
    (machine.root / "etc/systemd/system/grapnel-inventory.path").write_text("a copy that an older one left\n")
    assert install_units(machine.host, "hook", UNITS)
    for unit in UNITS:
        link = machine.root / "etc/systemd/system" / unit
        assert str(link.readlink()) == f"/usr/lib/grapnel/hook/systemd/{unit}"
    assert told(machine) == ["systemctl enable --now grapnel-inventory.service grapnel-inventory.path"]


def test_units_that_are_there_are_started_without_a_reload(machine: Machine) -> None:
    """A reload resets device rules that systemd does not know."""
    teach_units(machine, enabled="enabled")
    for unit in UNITS:
        (machine.root / "etc/systemd/system" / unit).symlink_to(f"/usr/lib/grapnel/hook/systemd/{unit}")
    assert not install_units(machine.host, "hook", UNITS)
    assert told(machine) == ["systemctl enable --now grapnel-inventory.service grapnel-inventory.path"]


def test_a_link_that_is_made_again_is_read_by_systemd(machine: Machine) -> None:
    teach_units(machine, enabled="enabled")
    assert install_units(machine.host, "hook", UNITS)
    assert told(machine)[0] == "systemctl daemon-reload"


def test_a_unit_that_does_not_start_is_named(machine: Machine) -> None:
    teach_units(machine, enabled="")
    machine.teach(f"systemctl enable --now {' '.join(UNITS)}", stderr="Job failed.", return_code=1)
    with pytest.raises(InstallationError, match=r"enable --now .+ grapnel-inventory\.path failed"):
        install_units(machine.host, "hook", UNITS)


@pytest.mark.parametrize("name", ["--root=/", "../x.service", "sshd.service"])
def test_what_is_no_unit_of_grapnel_is_refused(machine: Machine, name: str) -> None:
    with pytest.raises(InstallationError, match="is not the name of a unit"):
        install_units(machine.host, "hook", [name])
    assert machine.calls == []


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def test_what_came_with_the_module_is_an_archive_for_a_while() -> None:
    content = b"tar" * 1000

    with unpacked_content(packed(content), hashlib.sha256(content).hexdigest()) as archive:
        assert Path(archive).read_bytes() == content
        assert Path(archive).stat().st_mode & 0o077 == 0

    assert not Path(archive).exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(packed(b"another"), id="another archive"),
        pytest.param(packed(b"right")[:-8], id="cut short"),
        pytest.param("!", id="no base64"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_not_the_archive_is_not_unpacked(content: str) -> None:
    digest_of_right = hashlib.sha256(b"right").hexdigest()
    with (
        pytest.raises(InstallationError, match="not the archive with this digest"),
        unpacked_content(content, digest_of_right),
    ):
        pytest.fail("it was taken")


def test_an_error_of_the_disk_that_names_no_file_has_its_place(
    node: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    archive = make_archive(tmp_path, "one")
    monkeypatch.setattr(Path, "write_text", write)
    with pytest.raises(OSError, match=r"No space left on device: '/usr/lib/grapnel/releases'$"):
        install_part(node, "hook", digest("a"), archive)
    assert installed_digest(node, "hook") is None


def test_a_launcher_whose_interpreter_is_gone_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade of the distribution: the module ended with a traceback."""
    from ansible_collections.grapnel.node.plugins.module_utils.driver import installed as driver_program  # noqa: PLC0415 - see conftest

    launcher = tmp_path / "grapnel-driver"
    launcher.write_text("#!/nowhere/python3.9 -IS\n")
    launcher.chmod(0o755)
    monkeypatch.setattr(driver_program, "LAUNCHER", str(launcher))

    with pytest.raises(driver_program.ProgramError, match="or the interpreter that it names: No such file"):
        driver_program.read_status(driver_program.call_program)
