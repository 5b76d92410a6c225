"""Runs `ansible-inventory`: the only place of this part that starts a process, unless the caller has one that reads it.

Ansible stays the one that understands inventories (plugins, ranges, group_vars, vault). Its answer is returned as text;
`provision.declaration.fleet.inventory` reads it. Of the many lines that it says about a broken inventory, the useful
one is passed on.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from provision.base.errors import os_reason
from provision.declaration.fleet.errors import InventoryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROGRAM: Final = "ansible-inventory"
TIMEOUT_S: Final = 120.0
# What changes Ansible's answer is set here, whatever the operator's environment holds.
_SETTINGS: Final = {
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_INVENTORY_EXPORT": "1",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_DEPRECATION_WARNINGS": "0",
    "ANSIBLE_DEVEL_WARNING": "0",
    "PYTHONWARNINGS": "ignore",
}
_BLOCK: Final = re.compile(r"^\[(WARNING|ERROR)\]: ", re.MULTILINE)
_PLUGIN: Final = re.compile(r"Failed to parse inventory with '(\w+)' plugin: (.*)")
_ORIGIN: Final = re.compile(r"^Origin: (.+:\d+:\d+)$", re.MULTILINE)
_UNMATCHED: Final = re.compile(r"Could not match supplied host pattern, ignoring: (\S+)")


class InventoryProgram(Protocol):
    """Runs `ansible-inventory` to its end: `run_program`, or somebody who has Ansible running already."""

    def __call__(
        self, command: Sequence[str], *, directory: Path, environ: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Return what it printed; raises TimeoutExpired, or OSError when it does not start."""


@dataclass(frozen=True)
class InventoryText:
    """What ansible-inventory printed: the inventory as JSON, and the parts of `--limit` that matched nothing."""

    text: str
    unmatched: tuple[str, ...]


def run_program(
    command: Sequence[str], *, directory: Path, environ: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with nothing to read from."""
    return subprocess.run(
        command,
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
        encoding="utf-8",
        errors="replace",
    )


def export_inventory(
    sources: Sequence[str],
    *,
    limit: str,
    directory: Path,
    environ: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
    run: InventoryProgram = run_program,
) -> InventoryText:
    """Return the inventory as Ansible reads it; raises InventoryError with the useful line of what Ansible said."""
    command = [_find_program(environ), "--list", "--export", *(f"--inventory={each}" for each in sources)]
    command += [f"--limit={limit}"] if limit else []
    try:
        done = run(command, directory=directory, environ={**environ, **_SETTINGS}, timeout_s=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise InventoryError(f"{PROGRAM} did not answer within {timeout_s:.0f} s", hint=_paste(command)) from error
    except OSError as error:
        raise InventoryError(f"{command[0]} does not start: {os_reason(error)}") from error
    if done.returncode != 0:
        raise InventoryError(condense(done.stderr, sources), hint=_paste(command))
    return InventoryText(done.stdout, tuple(_UNMATCHED.findall(done.stderr)))


def condense(stderr: str, sources: Sequence[str]) -> str:
    """Return one line that says what is wrong, with file, line and column where Ansible tells them.

    Ansible tries several plugins on one file and reports every failure. A report with a line number is the best one;
    else the plugin that fits the file's name is believed.
    """
    starts = [match.start() for match in _BLOCK.finditer(stderr)]
    blocks = [stderr[start:end] for start, end in pairwise([*starts, len(stderr)])]
    reports = list(_reports(blocks))
    for _, origin, message in reports:
        if origin:
            return f"inventory {origin}: {message}"
    is_yaml = any(Path(each).suffix in {".yml", ".yaml", ".json"} for each in sources)
    wanted = "yaml" if is_yaml else "ini"
    for plugin, _, message in reports:
        if plugin == wanted:
            return f"inventory {', '.join(sources)}: {message}"
    last = blocks[-1] if blocks else stderr.strip() or "it gave no reason"
    return f"inventory {', '.join(sources)}: {_tidy(_BLOCK.sub('', last))}"


def _reports(blocks: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield plugin, file:line:column ("" where it is not told) and message of every failed attempt."""
    for block in blocks:
        match = _PLUGIN.search(block)
        if match:
            origin = _ORIGIN.search(block)
            yield match[1], origin[1] if origin else "", _tidy(match[2])


def _tidy(message: str) -> str:
    first = message.strip().splitlines()[0].rstrip(".")
    for noise in ("YAML parsing failed: ", "Failed to parse inventory: "):
        first = first.removeprefix(noise)
    first = re.sub(r"<class 'ansible\.[^']*_AnsibleTagged(\w+)'>", lambda found: found[1].lower(), first)
    return first[:1].lower() + first[1:]


def _find_program(environ: Mapping[str, str]) -> str:
    """Return the program of this Python's own environment, else the one on PATH."""
    beside = Path(sys.executable).with_name(PROGRAM)
    found = str(beside) if beside.is_file() else shutil.which(PROGRAM, path=environ.get("PATH"))
    if found is None:
        raise InventoryError(f"{PROGRAM} is not installed", hint="install grapnel again: Ansible comes with it")
    return found


def _paste(command: Sequence[str]) -> str:
    return f"to see more, run: {shlex.join([PROGRAM, *command[1:]])}"
