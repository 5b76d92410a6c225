"""A packed release does what its sources do, and is left aside where it does not fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.containers import Container, snapshot
from tests.runtime_hook.releases import PYTHON, install_release, pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]


def call(launcher: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Start a launcher by itself, as an engine does."""
    environment = {"PATH": "/usr/bin:/bin"}
    argv = [str(launcher), *arguments]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, env=environment)


def state_of_nothing(folder: Path) -> str:
    """Return the state of a container that asks for nothing."""
    (folder / "config.json").write_text('{"root": {"path": "rootfs"}}')
    return json.dumps({"id": "c1", "pid": 1, "bundle": str(folder)})


def modules_from(launcher: Path) -> str:
    """Tell where the launcher's modules come from."""
    (launcher.parent / "runtime_hook").rename(launcher.parent / "away")
    done = call(launcher, "--version")
    (launcher.parent / "away").rename(launcher.parent / "runtime_hook")
    return "pack" if done.returncode == 0 else "sources"


@pytest.mark.slow
def test_everything_comes_out_of_the_pack(tmp_path: Path, configure: Callable[..., list[str]]) -> None:
    launcher = install_release(tmp_path / "release")
    shutil.rmtree(tmp_path / "release/runtime_hook")

    assert call(launcher, "--version").stdout == "grapnel-hook 0.1.0\n"
    done = call(launcher, "prestart", *configure(), stdin=state_of_nothing(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("with_link", [False, True], ids=["by its own path", "through the link of the current release"])
@pytest.mark.parametrize("packed", [False, True], ids=["sources", "packed"])
def test_a_launcher_works_from_anywhere(tmp_path: Path, *, packed: bool, with_link: bool) -> None:
    launcher = install_release(tmp_path / "release", packed=packed)
    (tmp_path / "current").symlink_to("release")
    (tmp_path / "os.py").write_text("raise SystemExit(99)")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    argv = [str(tmp_path / "current/grapnel-hook" if with_link else launcher), "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert done.stdout == "grapnel-hook 0.1.0\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda data: data[:100], id="cut short"),
        pytest.param(lambda data: b"\0" * len(data), id="zeros after a power cut"),
        pytest.param(lambda _: b"i\1\0\0\0", id="another value"),
        pytest.param(lambda data: data.replace(data[10:14], b"\x01\x02\x0d\x0a", 1), id="other byte code"),
    ],
)
def test_a_pack_that_does_not_fit_is_left_aside(tmp_path: Path, content: Callable[[bytes], bytes]) -> None:
    launcher = install_release(tmp_path / "release")
    made = pack(launcher)
    assert modules_from(launcher) == "pack"
    made.write_bytes(content(made.read_bytes()))

    assert modules_from(launcher) == "sources"
    assert call(launcher, "--version").stdout == "grapnel-hook 0.1.0\n"


@pytest.mark.slow
def test_a_pack_is_named_after_its_interpreter(tmp_path: Path) -> None:
    made = pack(install_release(tmp_path / "release"))

    tag = subprocess.run(
        [PYTHON, "-c", "import sys; print(sys.implementation.cache_tag)"], capture_output=True, text=True, check=True
    )
    assert made.name == f"grapnel-hook.{tag.stdout.strip()}"
    assert made.stat().st_mode & 0o7777 == 0o644
    assert made.stat().st_uid == os.geteuid()


@pytest.mark.slow
def test_refresh_packs_for_an_interpreter_that_is_new(tmp_path: Path) -> None:
    launcher = install_release(tmp_path / "release", packed=False)

    call(launcher, "refresh", "--root", str(tmp_path), "--output", str(tmp_path / "inventory.json"))

    assert modules_from(launcher) == "pack"


def test_a_checkout_is_not_packed(tmp_path: Path) -> None:
    done = subprocess.run([PYTHON, "-IS", "runtime_hook", "pack"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "is no installed release" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["sources", "packed"])
def test_a_start_writes_nothing_into_the_release(
    tmp_path: Path, configure: Callable[..., list[str]], *, packed: bool
) -> None:
    launcher = install_release(tmp_path / "release", packed=packed)
    shutil.rmtree(tmp_path / "release/runtime_hook/__pycache__")
    before = snapshot(tmp_path / "release")

    assert call(launcher, "prestart", *configure(), stdin=state_of_nothing(tmp_path)).returncode == 0

    assert snapshot(tmp_path / "release") == before


@pytest.mark.functional
def test_a_packed_hook_gives_a_gpu(tmp_path: Path, container: Callable[..., Container]) -> None:
    launcher = install_release(tmp_path / "release")
    shutil.rmtree(tmp_path / "release/runtime_hook")

    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED, hook=launcher).run()

    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr
