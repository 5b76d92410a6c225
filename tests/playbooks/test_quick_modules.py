"""Modules are run with less than Ansible runs them with: what they answer, and what they refuse, is the same."""

from __future__ import annotations

import base64
import inspect
import json
import marshal
import os
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from ansible_collections.grapnel.node.plugins.plugin_utils import compiled_once
from ansible_collections.grapnel.node.plugins.plugin_utils.kept_modules import kept, version_of
from ansible_collections.grapnel.node.plugins.plugin_utils.quick_modules import quicken, read_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

COLLECTIONS: Final = Path(__file__).parents[2] / "playbooks" / "collections"
ASSEMBLE: Final = """
import base64, json, sys
from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader, module_loader
from ansible.template import Templar

init_plugin_loader([sys.argv[1]])
for name, arguments in json.load(sys.stdin):
    found = module_loader.find_plugin_with_context(name, ".py")
    built = modify_module(
        module_name=name, module_path=found.plugin_resolved_path, module_args=arguments, templar=Templar(DataLoader()),
        task_vars={"ansible_python_interpreter": sys.executable}, module_compression="ZIP_DEFLATED", async_timeout=0,
        environment={}, remote_is_local=False, become_plugin=None,
    )
    print(base64.b64encode(built.b_module_data).decode())
"""
FILES: Final = [{"path": "/etc/grapnel-of-no-machine/one", "content": "text\n"}]
CASES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "defaults are filled in": ("run_lock", {"state": "taken"}),
    "text is converted by Ansible": ("run_lock", {"state": "taken", "limit_s": "60"}),
    "no such choice": ("run_lock", {"state": "shut"}),
    "a required argument is missing": ("run_lock", {}),
    "no such argument": ("run_lock", {"state": "free", "color": "red"}),
    "arguments within arguments": ("configuration", {"unit": "", "files": FILES}),
    "one of them is missing": ("configuration", {"unit": "", "files": [{"path": "/etc/one"}]}),
    "the module itself refuses": ("configuration", {"unit": "no unit"}),
    "an argument that another one requires": ("driver", {"verb": "swap"}),
}


@pytest.fixture(scope="module")
def assembled() -> dict[str, bytes]:
    """Modules with their arguments as Ansible puts them together, by what a case is called."""
    given = []
    for name, arguments in CASES.values():
        full = f"grapnel.node.{name}"
        given.append((full, {"_ansible_check_mode": True, "_ansible_module_name": full, **arguments}))
    argv = [sys.executable, "-c", ASSEMBLE, str(COLLECTIONS)]
    made = subprocess.run(argv, input=json.dumps(given).encode(), check=True, capture_output=True).stdout
    return dict(zip(CASES, map(base64.b64decode, made.splitlines()), strict=True))


def run(module: bytes, command: str) -> tuple[int, dict[str, Any]]:
    """Pipe a module into a command as Ansible does; returns exit status and answer."""
    done = subprocess.run(["/bin/sh", "-c", command], input=module, capture_output=True, check=False, timeout=120)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_ansibles_own_way(case: str, assembled: dict[str, bytes]) -> None:
    module = assembled[case]
    quick = quicken(module, is_ours=True)

    ours, theirs = run(quick, read_at_once(sys.executable)), run(module, sys.executable)

    assert ours[0] == theirs[0]
    assert answer_of(ours[1]) == answer_of(theirs[1])
    assert b"def run_plainly" in quick


def answer_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the actions of the collection read of an answer."""
    return {key: value for key, value in result.items() if key not in ("exception", "invocation")}


def test_a_module_of_another_form_is_left_as_it_is() -> None:
    assert quicken(b"print('{}')\n", is_ours=True) == b"print('{}')\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder such as /usr/lib/grapnel, beside an archive with one module."""
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("package/__init__.py", "")
        archive.writestr("package/number.py", "VALUE = 1\n")
    made = tmp_path / "grapnel"
    made.mkdir(mode=0o755)
    return made


def imported(place: Path) -> int:
    """Return what the module's value is, where code is kept in a folder; the file's name is told as ever."""
    script = (
        f"{inspect.getsource(compiled_once)}\n"
        f"keep_compiled({str(place)!r}, {str(place.parent / 'modules')!r}, {os.geteuid()})\n"
        f"sys.path.insert(0, {str(place.parent / 'archive.zip')!r})\n"
        "import package.number\nassert package.number.__file__.endswith('archive.zip/package/number.py')\n"
        "assert package.__file__.endswith('archive.zip/package/__init__.py')\nprint(package.number.VALUE)\n"
    )
    return int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout)


def kept_code(place: Path) -> Path:
    """Return the file in which the module is kept, which is longer than that of its empty package."""
    return max((place.parent / "modules").iterdir(), key=lambda one: one.stat().st_size)


def put(path: Path, source: str) -> None:
    """Have another code kept than that of the source."""
    content = marshal.dumps(compile(source, "number.py", "exec"))
    path.write_bytes(sha256(content).digest() + content)


def test_what_is_compiled_is_taken_from_where_it_is_kept(place: Path) -> None:
    assert imported(place) == 1
    assert (place.parent / "modules").stat().st_mode & 0o777 == 0o700

    put(kept_code(place), "VALUE = 2")

    assert imported(place) == 2


def test_a_damaged_file_is_replaced(place: Path) -> None:
    assert imported(place) == 1
    whole = kept_code(place).read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-1] + b"x", bytes(len(whole))):
        kept_code(place).write_bytes(damaged)
        path = kept_code(place)
        assert imported(place) == 1
        assert whole in [one.read_bytes() for one in path.parent.iterdir()]


@pytest.mark.parametrize("whose", ["modules", "grapnel"], ids=["the folder", "grapnel's own"])
def test_code_that_others_could_have_written_is_not_run(place: Path, whose: str) -> None:
    assert imported(place) == 1
    put(kept_code(place), "VALUE = 2")

    (place.parent / whose).chmod(0o777)

    assert imported(place) == 1


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    assert imported(place) == 1
    put(kept_code(place), "VALUE = 2")
    (place.parent / "modules").rename(tmp_path / "elsewhere")
    (place.parent / "modules").symlink_to(tmp_path / "elsewhere")

    assert imported(place) == 1


def test_nothing_is_kept_where_grapnel_has_nothing(place: Path) -> None:
    place.rmdir()

    assert imported(place) == 1
    assert not (place.parent / "modules").exists()


def test_the_folder_does_not_grow_forever(place: Path) -> None:
    (place.parent / "modules").mkdir(mode=0o700)
    for number in range(2001):
        (place.parent / "modules" / str(number)).touch()

    assert imported(place) == 1
    assert len(list((place.parent / "modules").iterdir())) == 2


def test_sources_that_change_are_another_version(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    file = tmp_path / "below" / "one.py"
    file.write_text("VALUE = 1\n")
    before = version_of([tmp_path])
    assert version_of([tmp_path]) == before

    file.write_text("VALUE = 12\n")
    changed = version_of([tmp_path])
    (tmp_path / "two.py").touch()

    assert len({before, changed, version_of([tmp_path])}) == 3


@pytest.fixture
def ansibles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Ansible keeps modules for as long as it runs; the user's cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("ansible.constants.DEFAULT_LOCAL_TMP", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "ansiballz_cache" / "ansible_collections.grapnel.node.plugins.modules.mine-ZIP-none"


def test_a_module_that_was_put_together_is_there_in_the_next_run(ansibles: Path) -> None:
    with kept("mine"):
        assert not ansibles.exists()
        ansibles.write_bytes(b"put together")
    ansibles.unlink()

    with kept("others"):
        assert not ansibles.exists()
    with kept("mine"):
        assert ansibles.read_bytes() == b"put together"


def test_a_cache_that_others_can_write_to_is_not_used(ansibles: Path, tmp_path: Path) -> None:
    with kept("mine"):
        ansibles.write_bytes(b"put together")
    ansibles.unlink()
    (tmp_path / "cache" / "grapnel" / "ansible-modules").chmod(0o777)

    with kept("mine"):
        assert not ansibles.exists()


def test_a_module_runs_where_nothing_can_be_kept(ansibles: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file\n")

    with kept("mine"):
        ansibles.parent.mkdir(exist_ok=True)
        ansibles.write_bytes(b"put together")

    assert (tmp_path / "cache").read_text() == "a file\n"
