"""The wrapper runtime as a process: what becomes of a call, a bundle, a signal, an environment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from runtime_hook.engines.wrapper import RUNTIME_FOLDERS, RUNTIME_NAMES, WrapperError, find_runtime
from tests.runtime_hook.containers import REPOSITORY, START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.containers import Container

pytestmark = pytest.mark.functional

LAUNCHER = REPOSITORY / "runtime_hook/wrapper_launcher.sh"
# A runtime that says how it was started.
PROBE = f"""#!{sys.executable}
import json, os, sys
with open("/proc/self/environ", encoding="utf-8", errors="surrogateescape") as file:
    environment = file.read().split("\\0")[:-1]
told = {{"arguments": sys.argv[1:], "environment": environment, "folder": os.getcwd(), "pid": os.getpid()}}
print(json.dumps({{**told, "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))}}))
sys.exit(7)
"""
CONFIG: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "process": {"env": [], "args": ["x"], "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 18446744073709551615}]},
    "root": {"path": "rootfs"},
    "hooks": {"prestart": [{"path": "/usr/bin/dockerd", "args": ["libnetwork-setkey"]}], "poststop": [{"path": "/x"}]},
    "linux": {"resources": {"cpu": {"shares": 1024}}, "futureKey": {"kept": [1.5, None, "ü"]}},
    "annotations": {},
}
ASKING = {**CONFIG, "process": {**CONFIG["process"], "env": ["NVIDIA_VISIBLE_DEVICES=0"]}}


@dataclass
class Wrapper:
    """An installed wrapper, a runtime that only tells how it was started, and a configuration that lets images ask."""

    program: Path
    runtime: Path
    settings: Path

    @property
    def own(self) -> list[str]:
        """What root writes before the runtime's arguments."""
        return [f"--grapnel-runtime={self.runtime}", f"--grapnel-config={self.settings}"]

    def call(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Start it to its end as an engine does."""
        return self.start(*self.own, *arguments, **options)

    def start(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Start it without what root writes."""
        argv = [str(self.program), *map(str, arguments)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, **options)


@pytest.fixture
def wrapper(tmp_path: Path) -> Wrapper:
    """A folder as the payload's archive makes it."""
    folder = tmp_path / "hook"
    folder.mkdir()
    shutil.copy(LAUNCHER, folder / "grapnel-runtime")
    shutil.copy(REPOSITORY / "runtime_hook/launcher.py", folder / "grapnel-hook")
    (folder / "runtime_hook").symlink_to(REPOSITORY / "runtime_hook")
    made = Wrapper(folder / "grapnel-runtime", tmp_path / "probe-runtime", tmp_path / "hook.json")
    made.runtime.write_text(PROBE)
    made.runtime.chmod(0o755)
    made.settings.write_text('{"entitlement": "env"}')
    made.settings.chmod(0o644)
    return made


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(ASKING))
    (folder / "config.json").chmod(0o600)
    return folder


def read(bundle: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bundle / "config.json").read_text())
    return content


@pytest.mark.parametrize(
    "word", [pytest.param("kill", id="without Python"), pytest.param("create", id="through Python")]
)
def test_another_verb_is_the_runtimes_as_if_nothing_stood_between(wrapper: Wrapper, tmp_path: Path, word: str) -> None:
    environment = {"A": "1", "PYTHONPATH": "/nowhere", "LC_ALL": ""}
    reading, writing = os.pipe()
    arguments = ["--root", "/r", "exec", "ID", word, "--bundle", "/nowhere", "ü ", ""]
    done = wrapper.call(*arguments, env=environment, cwd=tmp_path, pass_fds=[reading, writing])
    os.close(reading)
    os.close(writing)

    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (7, "")
    assert told["arguments"] == arguments
    of_the_shell = {f"PWD={tmp_path}"}
    assert set(told["environment"]) - of_the_shell == {f"{name}={text}" for name, text in environment.items()}
    assert told["folder"] == str(tmp_path)
    assert {0, 1, 2, reading, writing} <= set(told["descriptors"]) <= {0, 1, 2, 3, reading, writing}


def test_what_python_ignores_is_not_inherited(wrapper: Wrapper) -> None:
    wrapper.runtime.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")

    done = wrapper.call("exec", "ID", "create")

    assert int(done.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0


def test_the_process_stays_the_one_that_the_engine_started(wrapper: Wrapper) -> None:
    argv = [str(wrapper.program), *wrapper.own, "exec", "ID", "run"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as started:
        told = json.loads(started.communicate(timeout=30)[0])
    assert told["pid"] == started.pid


def test_a_container_that_asks_gets_the_hook_and_the_rest_stays(wrapper: Wrapper, bundle: Path) -> None:
    done = wrapper.call("create", "--bundle", bundle, "ID")

    assert done.returncode == 7, done.stderr
    content = read(bundle)
    *before, added = content["hooks"].pop("prestart")
    assert before == ASKING["hooks"]["prestart"]
    assert content == {**ASKING, "hooks": {"poststop": [{"path": "/x"}]}}
    assert added == {
        "path": str(wrapper.program.with_name("grapnel-hook")),
        "args": ["grapnel-hook", "prestart", "--config", str(wrapper.settings)],
        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
        "timeout": 25,
    }
    assert stat.S_IMODE((bundle / "config.json").stat().st_mode) == 0o600
    assert [path.name for path in bundle.iterdir()] == ["config.json"]


def test_the_hook_is_added_once(wrapper: Wrapper, bundle: Path) -> None:
    wrapper.call("create", "--bundle", bundle, "ID")
    first = read(bundle)
    wrapper.call("create", "--bundle", bundle, "ID")
    assert read(bundle) == first


@pytest.mark.parametrize(
    ("environment", "is_started"),
    [
        pytest.param([], False, id="nothing asked"),
        pytest.param(["NVIDIA_VISIBLE_DEVICES=void"], False, id="void"),
        pytest.param(["NVIDIA_VISIBLE_DEVICES=all", "GRAPNEL_INJECTION=cdi"], True, id="an image that speaks of CDI"),
        pytest.param(["NVIDIA_VISIBLE_DEVICES=none"], True, id="the driver without devices"),
        pytest.param(["CUDA_VERSION=9.0"], True, id="a legacy image"),
    ],
)
def test_a_container_that_is_not_for_the_hook_does_not_start_it(
    wrapper: Wrapper, bundle: Path, environment: list[str], *, is_started: bool
) -> None:
    config = {**CONFIG, "process": {"env": environment}}
    (bundle / "config.json").write_text(json.dumps(config))
    wrapper.call("run", "ID", cwd=bundle)
    assert (read(bundle) != config) is is_started


@pytest.mark.parametrize(
    "hooks",
    [
        pytest.param(
            {
                "createRuntime": [
                    {"path": "/x/grapnel-hook", "args": ["grapnel-hook", "prestart", "--entitlement", "cdi"]}
                ]
            },
            id="the CDI file's",
        ),
        pytest.param(
            {
                "prestart": [
                    {
                        "path": "/usr/local/sbin/nvidia-container-runtime-hook",
                        "args": ["nvidia-container-runtime-hook", "prestart"],
                        "env": ["PATH=/usr/bin"],
                    }
                ]
            },
            id="that of Docker's --gpus",
        ),
    ],
)
def test_beside_a_hook_that_the_engine_added_no_other_is_added(
    wrapper: Wrapper, bundle: Path, hooks: dict[str, Any]
) -> None:
    config = {**ASKING, "hooks": hooks}
    (bundle / "config.json").write_text(json.dumps(config))
    wrapper.call("run", "ID", cwd=bundle)
    assert read(bundle) == config


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(lambda path: path.write_text("{"), "config.json: not JSON", id="half a document"),
        pytest.param(lambda path: path.write_text("[]"), "not a JSON object", id="a list"),
        pytest.param(
            lambda path: path.write_text(json.dumps({**ASKING, "hooks": {"prestart": 1}})),
            "hooks: prestart is not a list",
            id="hooks of another kind",
        ),
        pytest.param(
            lambda path: path.write_text(json.dumps({**ASKING, "hooks": [1]})),
            "hooks is not an object",
            id="a list of hooks",
        ),
        pytest.param(lambda path: (path.unlink(), os.mkfifo(path)), "is not a regular file", id="a FIFO"),
    ],
)
def test_a_bundle_that_cannot_be_read_starts_nothing(
    wrapper: Wrapper, bundle: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(bundle / "config.json")
    log = bundle.parent / "log.json"
    done = wrapper.call("--log", log, "--log-format", "json", "create", "--bundle", bundle, "ID",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("grapnel-runtime: ")
    assert words in done.stderr
    told = json.loads(log.read_text())
    assert told["level"] == "error"
    assert f"{told['msg']}\n" == done.stderr


def test_without_a_configuration_file_the_runtime_itself_complains(wrapper: Wrapper, tmp_path: Path) -> None:
    assert wrapper.call("create", "--bundle", tmp_path, "ID").returncode == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--grapnel-runtime=/nowhere/runc", "state"], "/nowhere/runc does not exist", id="not there"),
        pytest.param(["--grapnel-runtime=runc", "state"], "names no absolute path", id="by name"),
        pytest.param(["--grapnel-runtime=/etc", "state"], "/etc is not a program", id="a folder"),
        pytest.param(["--grapnel-runtime=/etc/passwd", "state"], "/etc/passwd is not a program", id="a text"),
        pytest.param(["--grapnel-runtme=/usr/sbin/runc"], "is unknown", id="misspelt"),
    ],
)
def test_a_runtime_that_cannot_be_is_told_in_one_line(wrapper: Wrapper, arguments: list[str], words: str) -> None:
    done = wrapper.start(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_first_known_place_that_has_a_runtime_counts(tmp_path: Path) -> None:
    for name in ("a/crun", "b/runc", "c/runc"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    assert find_runtime("", [str(tmp_path / folder) for folder in "abc"]) == str(tmp_path / "b/runc")
    with pytest.raises(WrapperError, match="found no runc or crun in /nowhere"):
        find_runtime("", ["/nowhere"])


def test_the_short_way_knows_the_same_places() -> None:
    places = [f"{folder}/{name}" for name in RUNTIME_NAMES for folder in RUNTIME_FOLDERS]
    assert " ".join(places) in " ".join(LAUNCHER.read_text().replace("\\", " ").split()).replace(";", "")


@pytest.mark.parametrize("own", [["runtime"], ["runtime", "config"], ["config", "runtime"]], ids=" ".join)
def test_what_root_wrote_never_reaches_the_runtime(wrapper: Wrapper, own: list[str]) -> None:
    words = {"runtime": f"--grapnel-runtime={wrapper.runtime}", "config": f"--grapnel-config={wrapper.settings}"}
    done = wrapper.start(*(words[name] for name in own), "state", "--grapnel-x")
    assert json.loads(done.stdout)["arguments"] == ["state", "--grapnel-x"]


def test_a_runtime_that_others_can_change_is_refused(wrapper: Wrapper, bundle: Path) -> None:
    wrapper.runtime.chmod(0o775)
    done = wrapper.call("create", "--bundle", bundle, "ID")
    assert (done.returncode, done.stdout) == (1, "")
    assert "can be changed by others than root" in done.stderr


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("visible", ["1", "void"])
def test_a_real_runtime_runs_what_was_asked(
    wrapper: Wrapper, container: Callable[..., Container], runtime: str, visible: str
) -> None:
    script = ["/bin/sh", "-c", "/bin/probe libcuda.so.1; ls /dev | grep nvidia"]
    environment = [f"NVIDIA_VISIBLE_DEVICES={visible}"]
    made = container(script, {"entitlement": "env"}, environment=environment, with_hook=False)
    _, config, _, root = made.hook_arguments
    folder = made.write()
    own = [f"--grapnel-runtime={shutil.which(runtime)}", f"--grapnel-config={config}", f"--grapnel-root={root}"]
    words = [*own, "--root", folder.parent / "state", "run", "--bundle", folder, f"wrapped-{os.getpid()}"]

    argv = [*START[runtime][:-1], str(wrapper.program), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)

    given = "libcuda.so.1 42\nnvidia-uvm\nnvidia-uvm-tools\nnvidia1\nnvidiactl\n"
    assert done.stdout == (given if visible == "1" else "libcuda.so.1 -1\n"), done.stderr
