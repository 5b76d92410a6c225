"""Is Ansible, started before it is known what it will run: reads the inventory, then becomes ansible-playbook.

Started by its path by ``provision.apply.runner.early``, which describes what goes in and out; only Ansible and the
standard library are at hand. Ansible is imported once: a fork of this process is ansible-inventory, which leaves no
trace here.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Print the inventory, tell how that ended, and run the playbook that is asked for; without one, end."""
    ended = int(sys.argv[1])
    os.set_inheritable(ended, False)
    inventory = os.fork()
    if not inventory:
        _read_inventory(sys.argv[2:])
    _open_as(os.devnull, os.O_WRONLY, 1, 2)
    from ansible.cli.playbook import PlaybookCLI  # noqa: PLC0415 - meanwhile

    _, status = os.waitpid(inventory, 0)
    os.write(ended, b"%d" % os.waitstatus_to_exitcode(status))
    os.close(ended)
    request = sys.stdin.buffer.readline()
    if not request.endswith(b"\n"):  # whoever would have asked has ended, or was killed meanwhile
        return
    asked = json.loads(request)
    os.setsid()  # an interrupt at the keyboard is for who asks, and ends this in order
    _end_with(os.dup(0))
    _open_as(os.devnull, os.O_RDONLY, 0)
    _open_as(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1, 2)
    os.environ.update(asked["environment"])
    sys.argv = asked["command"]
    gc.enable()
    PlaybookCLI.cli_executor(sys.argv)


def _read_inventory(command: list[str]) -> NoReturn:
    """Be ansible-inventory, in a process that does nothing else."""
    status = 1
    try:
        _open_as(os.devnull, os.O_RDONLY, 0)
        from ansible.cli.inventory import InventoryCLI  # noqa: PLC0415 - here alone

        gc.enable()
        InventoryCLI.cli_executor(command)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what is to be done at the end, such as removing Ansible's own folder, is the other's


def _end_with(pipe: int) -> None:
    """Have the kernel send SIGTERM as soon as nobody has the other end of a pipe, as when who asks was killed."""
    if hasattr(fcntl, "F_SETSIG"):  # Linux
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
        if select.select([pipe], [], [], 0)[0]:  # it was before
            sys.exit(1)


def _open_as(path: str, flags: int, *descriptors: int) -> None:
    opened = os.open(path, flags, 0o600)
    for one in descriptors:
        os.dup2(opened, one)
    os.close(opened)


if __name__ == "__main__":
    gc.disable()  # modules are no garbage: the collector looks through them again and again while they are loaded
    import ansible.cli  # noqa: F401 - what both need, before the fork

    main()
