"""The hook file that grapnel writes for CRI-O and Podman, read by a real Podman: when it starts the hook."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from provision.planning.engines.table import find_engine
from tests.provision.samples import make_facts, make_stack
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.runtime_hook.podman import Podman

pytestmark = [
    pytest.mark.functional,
    pytest.mark.skipif(shutil.which("podman") is None, reason="there is no podman: apt-get install podman"),
]

PODMAN: dict[str, Any] = {"runtime": {"engine": "podman", "entitlement": "env"}, "plugin": {"enabled": False}}
CRIO: dict[str, Any] = {"runtime": {"engine": "crio"}}
ALL = ["--env", "NVIDIA_VISIBLE_DEVICES=all"]
HANDLER = ["--annotation", "grapnel.dev/handler=nvidia"]
# As the device plugin's answer: the annotation, which makes the hook start, and the device, which entitles.
NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")
ALLOCATION = ["--annotation", f"grapnel.dev/allocation={uuid(0)}"]
ALLOCATION += [word for name in NODES for word in ("--device", f"{{host}}/dev/{name}:/dev/{name}:rw")]
FORGED = ["--annotation", f"grapnel.dev/allocation={uuid(0)}"]


@pytest.mark.parametrize(
    ("sections", "options", "outcome"),
    [
        pytest.param(PODMAN, ALL, (1, 42), id="the environment asks where it counts"),
        pytest.param(PODMAN, [], (1, -1), id="it does not: the schema cannot tell, the hook can"),
        pytest.param(CRIO, [*HANDLER, *ALLOCATION], (1, 42), id="an allocation in a pod of the handler"),
        pytest.param(CRIO, [*HANDLER, *FORGED], (1, -1), id="a forged one: started, for nothing"),
        pytest.param(CRIO, [*HANDLER, *ALL], (0, -1), id="no allocation: not even started"),
        pytest.param(CRIO, [*ALLOCATION, *ALL], (0, -1), id="another handler: not even started"),
        pytest.param(CRIO, [], (0, -1), id="nothing: not even started"),
    ],
)
def test_starts_of_the_hook_and_what_they_bring(
    podman: Podman,
    configure: Callable[..., list[str]],
    sections: dict[str, Any],
    options: list[str],
    outcome: tuple[int, int],
) -> None:
    stack = make_stack(**sections)
    (file,) = find_engine(make_facts(), stack.runtime.engine).own_files(stack)
    podman.install(file.content, configure(entitlement=stack.runtime.entitlement.value))

    done = podman.run(options, ["/bin/probe", "libcuda.so.1"])

    starts, answer = outcome
    assert (done.returncode, done.stdout) == (0, f"libcuda.so.1 {answer}\n"), done.stderr
    assert podman.starts() == starts
