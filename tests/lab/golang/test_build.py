"""Programs are built once, kept, and never count as finished too early."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from lab.golang import build, programs
from lab.golang.build import available_memory, ensure, key, require_room
from lab.golang.errors import GolangError
from lab.golang.toolchain import Toolchain

if TYPE_CHECKING:
    from tests.lab.golang.conftest import FakeGo

PROGRAM = replace(programs.containerd(), memory_bytes=0, disk_bytes=0)  # the stand-in needs neither
TOOLCHAIN = Toolchain("go", "go1.26.8", "amd64")
BUILD = """
from dataclasses import replace
from functools import partial
from lab.golang import build, programs
print(build.ensure(replace(programs.containerd(), memory_bytes=0, disk_bytes=0), partial(print, flush=True)))
"""


def build_elsewhere() -> subprocess.Popen[str]:
    """Start a build in a process of its own, as another command would."""
    return subprocess.Popen([sys.executable, "-c", BUILD], cwd=Path(build.__file__).parents[2], stdout=-1, text=True)


def until_compiling(go: FakeGo) -> None:
    deadline = time.monotonic() + 20
    while not (go.folder / "gocache").exists():
        assert time.monotonic() < deadline, "the build did not begin"
        time.sleep(0.02)


def is_running(go: FakeGo) -> bool:
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # processes end while we look
            commands.append(path.read_bytes())
    return any(str(go.folder / "go").encode() in command for command in commands)


@pytest.mark.usefixtures("go")
def test_a_build_tells_what_it_is_at_and_is_whole(cache: Path) -> None:
    said: list[str] = []
    folder = ensure(PROGRAM, said.append)
    assert sorted(path.name for path in folder.iterdir()) == sorted(PROGRAM.files)
    assert said[:3] == [
        "containerd 2.2.1: downloading example.invalid/module v1.0.0",
        "containerd 2.2.1: 1 of 3 packages compiled, now b",
        "containerd 2.2.1: 2 of 3 packages compiled, now c",
    ]
    assert sorted(path.name for path in cache.iterdir()) == sorted([folder.name, "build.lock"])


@pytest.mark.usefixtures("cache")
def test_what_was_built_is_not_built_again(go: FakeGo) -> None:
    assert ensure(PROGRAM, print) == ensure(PROGRAM, print)
    assert len(go.calls("build")) == 1


def test_kubernetes_has_its_roles_as_links(go: FakeGo, cache: Path) -> None:
    script = (go.folder / "go").read_text().replace("containerd containerd-shim-runc-v2 ctr", "hyper")
    (go.folder / "go").write_text(script)
    (go.folder / "answer").write_text("Kubernetes v1.34.4\n")
    folder = ensure(replace(programs.kubernetes("1.34.4"), memory_bytes=0, disk_bytes=0), print)
    assert {str((folder / role).readlink()) for role in programs.KUBERNETES_ROLES} == {"hyper"}
    assert folder.name.startswith("kubernetes-1.34.4-")
    assert folder.parent == cache


@pytest.mark.parametrize(
    ("program", "toolchain"),
    [
        pytest.param(PROGRAM, replace(TOOLCHAIN, version="go1.26.9"), id="another Go"),
        pytest.param(PROGRAM, replace(TOOLCHAIN, architecture="arm64"), id="another architecture"),
        pytest.param(replace(PROGRAM, variables={}), TOOLCHAIN, id="other flags"),
        pytest.param(replace(PROGRAM, sources=PROGRAM.sources[:1]), TOOLCHAIN, id="other hashes"),
        pytest.param(replace(PROGRAM, links=("alias",)), TOOLCHAIN, id="other links"),
    ],
)
def test_whatever_decides_what_comes_out_is_in_the_key(program: programs.Program, toolchain: Toolchain) -> None:
    assert key(program, toolchain) != key(PROGRAM, TOOLCHAIN)


def test_where_go_is_installed_is_not_in_the_key() -> None:
    assert key(PROGRAM, replace(TOOLCHAIN, go="/elsewhere/go")) == key(PROGRAM, TOOLCHAIN)


@pytest.mark.slow
def test_a_killed_build_is_not_taken_for_done_and_the_next_goes_on(go: FakeGo, cache: Path) -> None:
    (go.folder / "hang").touch()
    victim = build_elsewhere()
    until_compiling(go)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert sorted(path.name.split("-")[0] for path in cache.iterdir()) == [".build", ".gocache", "build.lock"]
    (go.folder / "hang").unlink()

    folder = ensure(PROGRAM, print)
    assert (go.folder / "gocache").read_text().split() == ["compiled"]  # what the killed one had compiled
    assert sorted(path.name for path in cache.iterdir()) == sorted([folder.name, "build.lock"])


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_a_killed_build_takes_go_along(go: FakeGo) -> None:
    (go.folder / "hang").touch()
    victim = build_elsewhere()
    until_compiling(go)
    assert is_running(go)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    deadline = time.monotonic() + 10
    while is_running(go):
        assert time.monotonic() < deadline, "go outlived the build"
        time.sleep(0.02)


@pytest.mark.slow
def test_two_builds_side_by_side_make_one(go: FakeGo, cache: Path) -> None:
    (go.folder / "hang").touch()
    first = build_elsewhere()
    until_compiling(go)
    second = build_elsewhere()
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting for another build (")
    (go.folder / "hang").unlink()
    answers = [process.communicate(timeout=60)[0].splitlines()[-1] for process in (first, second)]
    assert answers[0] == answers[1]
    assert Path(answers[0]).parent == cache
    assert len(go.calls("build")) == 1


def test_a_person_s_own_compile_cache_is_used_and_kept(
    go: FakeGo, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOCACHE", str(tmp_path / "own"))
    ensure(PROGRAM, print)
    assert (tmp_path / "own" / "compiled").exists()
    assert not list(cache.glob(".gocache-*"))
    assert go.calls("build")


def test_what_a_build_left_that_was_killed_at_its_end_goes_with_the_next_look(go: FakeGo, cache: Path) -> None:
    folder = ensure(PROGRAM, print)
    left_over = cache / ".gocache-containerd-2.2.1"
    left_over.mkdir()
    assert ensure(PROGRAM, print) == folder
    assert not left_over.exists()
    assert len(go.calls("build")) == 1


@pytest.mark.parametrize(
    ("verb", "printed", "message"),
    [
        pytest.param(
            "list",
            "go: example.invalid/module@v1.0.0: dial tcp: connection refused",
            r"the modules of containerd 2\.2\.1 cannot be downloaded \(`go env GOPROXY` shows from where\)",
            id="the proxy cannot be reached",
        ),
        pytest.param("build", "a.go:1: no", r"containerd 2\.2\.1 was not built", id="it does not compile"),
    ],
)
def test_what_go_complains_of_is_shown(go: FakeGo, cache: Path, verb: str, printed: str, message: str) -> None:
    go.fails(verb, printed)
    with pytest.raises(GolangError, match=message) as caught:
        ensure(PROGRAM, print)
    assert caught.value.hint.endswith(printed)
    assert not list(cache.glob("containerd-*"))
    assert not list(cache.glob(".build-*"))


def test_a_program_that_says_another_version_is_not_kept(go: FakeGo, cache: Path) -> None:
    (go.folder / "answer").write_text("containerd example 2.2.1+unknown\n")
    with pytest.raises(GolangError, match=r"was built but reports version 'containerd example 2\.2\.1\+unknown'"):
        ensure(PROGRAM, print)
    assert not list(cache.glob("containerd-*"))


def test_memory_and_free_swap_count() -> None:
    text = "MemTotal: 9 kB\nMemAvailable:    2048 kB\nSwapFree: 1024 kB\nHugePages_Total: 0\n"
    assert available_memory(text) == 3 * 1024 * 1024


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"memory_bytes": 1 << 60}, "GiB of memory are available", "linking containerd 2.2.1 needs"),
        ({"disk_bytes": 1 << 60}, "GiB of disk are free", "building containerd 2.2.1 needs"),
    ],
    ids=["memory", "disk"],
)
def test_a_machine_that_is_too_small_is_told_by_how_much(
    tmp_path: Path, change: dict[str, int], message: str, hint: str
) -> None:
    with pytest.raises(GolangError, match=message) as caught:
        require_room(replace(PROGRAM, **change), tmp_path, tmp_path / "none")
    assert caught.value.hint.startswith(hint)


def test_what_an_earlier_try_compiled_counts_as_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tmp_path / "gocache"
    compiled.mkdir()
    (compiled / "package").write_bytes(bytes(700))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=400))
    small = replace(PROGRAM, disk_bytes=1000, memory_bytes=0)
    require_room(small, tmp_path, compiled)
    with pytest.raises(GolangError, match="disk"):
        require_room(small, tmp_path, tmp_path / "none")
