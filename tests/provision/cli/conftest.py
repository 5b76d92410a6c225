"""Verbs that ask Ansible for the same inventory are answered by one process of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.ansible import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Sequence

_run = subprocess.run
_answers: dict[tuple[object, ...], subprocess.CompletedProcess[str]] = {}


@pytest.fixture(autouse=True)
def ansible_reads_the_same_inventory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time of most verbs is Ansible's start, and their tests declare few fleets in many folders."""
    monkeypatch.setattr(subprocess, "run", run_or_remember)


def run_or_remember(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program, but Ansible once alone for sources that read alike; what it says of broken ones names them."""
    if Path(command[0]).name != PROGRAM:
        return _run(command, **options)
    sources = [options["cwd"] / word.partition("=")[2] for word in command if word.startswith("--inventory=")]
    if not all(map(is_plain, sources)):
        return _run(command, **options)
    settings = sorted((name, text) for name, text in options["env"].items() if name.startswith("ANSIBLE_"))
    limits = [word for word in command if word.startswith("--limit=")]
    key = (*map(Path.read_bytes, sources), *limits, *settings)
    if (known := _answers.get(key)) is not None:
        return known
    done = _run(command, **options)
    if done.returncode == 0:
        _answers[key] = done
    return done


def is_plain(source: Path) -> bool:
    """Return whether the text of a source is all that Ansible reads of it."""
    beside = (source.parent / name for name in ("group_vars", "host_vars", "ansible.cfg"))
    return source.is_file() and not os.access(source, os.X_OK) and not any(path.exists() for path in beside)
