"""What often ails machines: the words of ssh, sudo and Python, and those that are shown instead."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner import TaskOutcome
from provision.apply.runner.ailments import recognize
from tests.provision.runner.stage import LOCAL, Stage, done

if TYPE_CHECKING:
    from pathlib import Path

CHANGED_KEY = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
It is also possible that a host key has just been changed.
The fingerprint for the ED25519 key sent by the remote host is
SHA256:uNiVztksCsDhcc0u9e8BrwfaTbIf1lPNEP1ExjqjCGo.
Please contact your system administrator.
Add correct host key in /home/ada/.ssh/known_hosts to get rid of this message.
Offending ED25519 key in /home/ada/.ssh/known_hosts:12
  remove with:
  ssh-keygen -f "/home/ada/.ssh/known_hosts" -R "10.0.0.1"
Host key for 10.0.0.1 has changed and you have requested strict checking.
Host key verification failed.
"""
NO_FOLDER = (
    "Failed to create temporary directory. In some cases, you may have been able to authenticate and did not have "
    "permissions on the target directory. Consider changing the remote tmp path in ansible.cfg to a path rooted in "
    '"/tmp". Failed command was: ( umask 77 && mkdir -p x ), exited with result 1, stderr output: mkdir: cannot create '
    "directory '/root/.ansible/tmp/ansible-tmp-1': Read-only file system"
)
TRACEBACK = """\
Traceback (most recent call last):
  File "<stdin>", line 107, in <module>
OSError: [Errno 28] No space left on device: '/tmp/ansible_facts_payload_x'
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            f"Failed to connect to the host via ssh: {CHANGED_KEY}",
            "its host key is not the one in /home/ada/.ssh/known_hosts:12: remove that line if",
            id="another host key",
        ),
        pytest.param(
            "Failed to connect to the host via ssh: No ED25519 host key is known for h1 and you have requested strict "
            "checking.\nHost key verification failed.",
            "its host key is not known here: compare it with the machine's own",
            id="unknown host key",
        ),
        pytest.param(
            "Task failed: Incorrect sudo password",
            "the password for sudo is wrong: check ansible_become_password",
            id="wrong password",
        ),
        pytest.param(
            "Task failed: Missing su password",
            "su asks for a password, and none is given: set ansible_become_password",
            id="no password",
        ),
        pytest.param(
            "Data could not be sent to remote host '10.0.0.1'. Make sure this host can be reached over SSH: [Errno 32] "
            "Broken pipe",
            "ssh ended before it was told what to run, and what it said was not read: `ssh` to it says why",
            id="ssh that had not quite ended",
        ),
        pytest.param(
            NO_FOLDER,
            "its file system is read-only (/root/.ansible/tmp/ansible-tmp-1): `dmesg` on the machine says why;",
            id="read-only root",
        ),
        pytest.param(
            TRACEBACK,
            "its disk is full (/tmp/ansible_facts_payload_x): `df -h` and `df -i` on the machine show where;",
            id="full disk",
        ),
        pytest.param("cannot write /etc/x: No space left on device", "", id="a line that names its place is kept"),
        pytest.param(
            "the hook cannot be installed: [Errno 28] No space left on device: '/usr/lib/grapnel/releases'",
            "its disk is full (/usr/lib/grapnel/releases): `df -h` and `df -i` on the machine show where;",
            id="a line that passes on Python's words",
        ),
        pytest.param("E:Unable to locate package x", "", id="anything else"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_known_ailments_have_their_place_and_a_remedy(text: str, words: str) -> None:
    told = recognize([text])

    assert told.startswith(words)
    assert bool(told) == bool(words)
    assert "\n" not in told


@pytest.mark.parametrize("end", ["\n", "\v", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("text", ["[Errno 28] No space left on device: b'/a{}b'", "'/a{}b': Read-only file system"])
def test_a_path_of_several_lines_is_no_place(text: str, end: str) -> None:
    told = recognize(["", text.format(end)])

    assert told.splitlines() == [told]
    assert "/a" not in told


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        pytest.param(
            ["non-zero return code", "touch: cannot touch '/etc/x': Read-only file system"],
            "its file system is read-only (/etc/x):",
            id="a message without content",
        ),
        pytest.param(["cannot write /etc/x: Read-only file system", TRACEBACK], "", id="a message that says it all"),
        pytest.param([], "", id="silence"),
    ],
)
def test_what_is_said_beside_the_message_counts_where_that_says_nothing(texts: list[str], words: str) -> None:
    told = recognize(texts)

    assert told.startswith(words)
    assert bool(told) == bool(words)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.functional
@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param(CHANGED_KEY, "its host key is not the one in /home/ada/.ssh/known_hosts:12", id="key"),
        pytest.param("", "the connection ended without a word: is the machine still there?", id="silence"),
        pytest.param(
            "ssh: connect to host h1 port 22: Connection timed out",
            "ssh: connect to host h1 port 22: Connection timed out",
            id="vanished",
        ),
    ],
)
def test_a_node_that_ssh_cannot_reach_is_told_and_the_others_go_on(stage: Stage, said: str, words: str) -> None:
    (stage.folder / "said").write_text(said)
    ssh = script(stage.folder / "ssh", f"cat {stage.folder}/said >&2; exit 255")
    bad = f"n2 ansible_connection=ssh ansible_host=h1 ansible_ssh_executable={ssh}\n"

    ended = {one.node: one for one in done(stage.run(stage.request("- ping:", inventory=f"n1 {LOCAL}\n{bad}")))}

    assert ended["n1"].outcome is TaskOutcome.OK
    assert ended["n2"].outcome is TaskOutcome.UNREACHABLE
    assert ended["n2"].message.startswith(words)


SUDO = """\
prompt=; for word; do case $last in -p) prompt=$word;; esac; last=$word; done
printf %s "$prompt" >&2; read -r _; echo 'Sorry, try again.' >&2; printf %s "$prompt" >&2; read -r _; exit 1"""


@pytest.mark.functional
@pytest.mark.parametrize(
    ("sudo", "more", "words"),
    [
        pytest.param(SUDO, "ansible_become_password=wrong", "the password for sudo is wrong: check", id="wrong"),
        pytest.param(
            "echo 'sudo: a password is required' >&2; exit 1",
            "",
            "sudo asks for a password, and none is given: set",
            id="none",
        ),
    ],
)
def test_a_node_whose_become_password_is_wrong_is_told_and_the_others_go_on(
    stage: Stage, sudo: str, more: str, words: str
) -> None:
    program = script(stage.folder / "sudo", sudo)
    bad = f"n2 {LOCAL} ansible_become=true ansible_become_user=nobody ansible_become_exe={program} {more}\n"

    ended = {one.node: one for one in done(stage.run(stage.request("- ping:", inventory=f"n1 {LOCAL}\n{bad}")))}

    assert ended["n1"].outcome is TaskOutcome.OK
    assert ended["n2"].outcome in (TaskOutcome.FAILED, TaskOutcome.UNREACHABLE)
    assert ended["n2"].message.startswith(words)


FULL = "mount -t tmpfs -o size=64k none /tmp && mount -t tmpfs -o size=64k none /var/tmp && cd /tmp"
READ_ONLY = "mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"


@pytest.mark.functional
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts: needs root")
@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        pytest.param(FULL, "its disk is full: `df -h`", id="full disk"),
        pytest.param(READ_ONLY, "its file system is read-only (", id="read-only"),
    ],
)
def test_a_node_that_cannot_write_is_told_and_a_later_run_converges(stage: Stage, prepare: str, words: str) -> None:
    target, mark = stage.folder / "target", stage.folder / "ailing"
    target.mkdir()
    mark.touch()
    ail = prepare.format(folder=target)
    python = script(
        stage.folder / "python",
        f'[ -e {mark} ] || exec /usr/bin/python3 "$@"\n'
        f'exec unshare --mount sh -c \'{ail} && exec /usr/bin/python3 "$@"\' - "$@"',
    )
    bad = f"n2 ansible_connection=local ansible_python_interpreter={python}\n"
    task = f"- command: touch {target}/{{{{ inventory_hostname }}}}"
    request = stage.request(task, inventory=f"n1 {LOCAL}\n{bad}")

    ended = {one.node: one for one in done(stage.run(request))}
    mark.unlink()
    later = {one.node: one for one in done(stage.run(request))}

    assert ended["n1"].outcome is TaskOutcome.CHANGED
    assert ended["n2"].outcome is TaskOutcome.FAILED
    assert ended["n2"].message.startswith(words)
    assert later["n2"].outcome is TaskOutcome.CHANGED
    assert subprocess.run(["ls", target], capture_output=True, text=True, check=True).stdout.split() == ["n1", "n2"]


@pytest.mark.functional
@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(
            'echo "SyntaxError: future feature annotations is not defined" >&2; exit 1',
            "its Python is too old for Ansible, which needs 3.8: install a later one beside it",
            id="Python 3.6",
        ),
        pytest.param(None, "it has no Python where Ansible looks for one: install a later one", id="no Python"),
    ],
)
def test_a_node_whose_python_does_not_do_is_told_what_helps(stage: Stage, body: str | None, words: str) -> None:
    """RHEL 8 and SLES 15: it was a traceback of Python's."""
    python = stage.folder / "none" if body is None else script(stage.folder / "python", body)
    bad = f"n2 ansible_connection=local ansible_python_interpreter={python}\n"

    ended = {one.node: one for one in done(stage.run(stage.request("- ping:", inventory=f"n1 {LOCAL}\n{bad}")))}

    assert ended["n1"].outcome is TaskOutcome.OK
    assert ended["n2"].outcome is TaskOutcome.FAILED
    assert ended["n2"].message.startswith(words)
    assert "`dnf install python3.11`" in ended["n2"].message
    assert "`zypper install python311`" in ended["n2"].message
