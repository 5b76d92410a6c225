"""Our CDI file, read by real containerds through the CRI: what a container gets, and which of two hooks works."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from lab import golang, images
from lab.cri import CriError
from lab.cri.config import ContainerSpec, container_config
from lab.cri.engine import Handler, containerd, packages, unpack
from lab.golang.programs import NEWEST_CONTAINERD_VERSION
from provision.planning.engines.containerd.base_spec import base_spec
from tests.runtime_hook.containers import HOOK, MULTIARCH, run_hook
from tests.runtime_hook.drivertree import DriverTree, uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cri import Cri, Finished

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd and runc need root"),
]

SHELL = images.reference("gpu-shell")
LOOK = f"ls /{MULTIARCH} | grep libcuda.so.1$; for n in 0 1; do (: < /dev/nvidia$n) 2>&- && echo $n open; done; true"
COUNTING = '#!/bin/sh\necho "$*" >> {log}\nexec /usr/bin/python3 -IS {hook} "$@"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host with a driver, a hook that writes down its starts, and a CDI file that names it."""
    folder = tmp_path_factory.mktemp("cdi")
    driver = DriverTree(folder / "host", tmp_path_factory.mktemp("objects")).build()
    (folder / "hook.json").write_text(json.dumps({"inventory": str(folder / "inventory.json"), "log": "none"}))
    hook = folder / "grapnel-hook"
    hook.write_text(COUNTING.format(log=folder / "starts", hook=HOOK))
    hook.chmod(0o755)
    argv = ["cdi", "--root", str(driver.root), "--config", str(folder / "hook.json"), "--hook", str(hook)]
    made = run_hook([*argv, "--output", str(folder / "cdi.d/grapnel.json")])
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module", params=["1.7", "2.2", pytest.param("2.4", marks=pytest.mark.long)])
def cri(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cri]:
    place = tmp_path_factory.mktemp("engine")
    built = {"2.2": None, "2.4": NEWEST_CONTAINERD_VERSION}
    is_second = request.param in built
    programs = golang.containerd(built[request.param]) if is_second else unpack(packages("trixie"), place / "packages")
    spec = base_spec(hook_timeout_s=10)
    spec["hooks"]["prestart"][0] |= {
        "path": str(folder / "grapnel-hook"),
        "args": ["grapnel-hook", "prestart", "--root", str(folder / "host"), "--config", str(folder / "hook.json")],
    }
    (place / "base-spec.json").write_text(json.dumps(spec))
    handlers = {"nvidia": Handler(base_runtime_spec=place / "base-spec.json")}
    version = 3 if is_second else 2
    with (
        containerd(place, programs, handlers, version=version, cdi=folder / "cdi.d") as engine,
        engine.cri(timeout_s=30) as cri,
    ):
        for name in ("pause", "gpu-shell"):
            engine.import_image(images.archive(name))
        yield cri


def run(cri: Cri, handler: str, spec: ContainerSpec) -> Finished:
    pod = cri.run_pod("cdi", handler=handler)
    try:
        return cri.run_config(pod, container_config(spec))
    finally:
        cri.remove_pod(pod)


def asking(*names: str) -> ContainerSpec:
    return ContainerSpec(SHELL, ["sh", "-c", LOOK], cdi_devices=[f"nvidia.com/gpu={name}" for name in names])


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        pytest.param([uuid(1)], "libcuda.so.1\n1 open\n", id="one GPU by UUID"),
        pytest.param(["0", uuid(1)], "libcuda.so.1\n0 open\n1 open\n", id="two GPUs"),
        pytest.param([], "", id="none"),
    ],
)
@pytest.mark.parametrize("handler", ["runc", "nvidia"])
def test_a_container_gets_the_devices_that_the_kubelet_named(
    cri: Cri, handler: str, names: list[str], seen: str
) -> None:
    assert run(cri, handler, asking(*names)).log == seen


def test_of_two_hooks_the_cdi_files_does_the_work(cri: Cri, folder: Path) -> None:
    (folder / "starts").unlink(missing_ok=True)
    run(cri, "nvidia", asking("0"))
    started = (folder / "starts").read_text().splitlines()
    assert len(started) == 2
    assert sum("--entitlement cdi" in line for line in started) == 1


def test_a_name_that_is_not_in_the_file_is_the_engines_refusal(cri: Cri) -> None:
    with pytest.raises(CriError, match=r"nvidia\.com/gpu=7"):
        run(cri, "runc", asking("7"))
