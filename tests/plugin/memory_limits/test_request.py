"""Whose control group a limit is set for: the container's own, or nobody's."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from plugin.base.errors import LimitError
from plugin.sharing.memory_limits.request import GivenMemory, LimitRequest, check_group, parse_request
from tests.plugin.fakes import gpu

ID, OTHER = "a1" * 32, "b2" * 32
POD = "0a1b2c3d-0000-4000-8000-00112233aabb"
POD_SLICE = POD.replace("-", "_")
GIVEN = GivenMemory({gpu(0).uuid: 1 << 30})
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_SLICE}.slice"


def request(group: str, container_id: str = ID) -> LimitRequest:
    return LimitRequest(container_id, group, GIVEN)


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope", id="containerd, systemd"),
        pytest.param(f"/kubepods.slice/kubepods-pod{POD_SLICE}.slice/crio-{ID}.scope", id="cri-o, guaranteed"),
        pytest.param(f"{SYSTEMD}/crio-{ID}.scope/container", id="crun's inner group"),
        pytest.param(f"/kubepods/besteffort/pod{POD}/{ID}", id="cgroupfs"),
        pytest.param(f"/kubelet/kubepods/pod{POD}/{ID}", id="a kubelet with a root of its own"),
        pytest.param(f"/kubepods-pod{POD_SLICE}.slice:cri-containerd:{ID}", id="an engine with another driver"),
    ],
)
def test_the_groups_of_engines_are_taken(group: str) -> None:
    check_group(request(group))


@pytest.mark.parametrize(
    "group",
    [
        pytest.param("", id="no cgroup v2"),
        pytest.param("/", id="everything"),
        pytest.param("/system.slice/grapnel-node.service", id="a service"),
        pytest.param(f"/system.slice/docker-{ID}.scope", id="a container of no pod"),
        pytest.param(f"/user.slice/user@1000.service/kubepods-pod{POD_SLICE}.slice/{ID}", id="a user's own pod"),
        pytest.param(SYSTEMD, id="the whole pod"),
        pytest.param("/kubepods.slice", id="all pods"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{OTHER}.scope", id="another container"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{OTHER}.scope/{ID}", id="made by another container"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope/below", id="made by the container"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope/{OTHER}", id="a container in the container"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope/cri-containerd-{ID}.scope", id="its own name in itself"),
        pytest.param(f"{SYSTEMD}/between/cri-containerd-{ID}.scope", id="not at once below the pod"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}{OTHER}.scope", id="a longer id"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.slice", id="a name that no engine gives"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope/..", id="up at the end"),
        pytest.param(f"{SYSTEMD}/../{ID}", id="up in the middle"),
        pytest.param(f"/../..{SYSTEMD}/cri-containerd-{ID}.scope", id="out of a cgroup namespace"),
        pytest.param(f"{SYSTEMD}/./cri-containerd-{ID}.scope", id="a dot"),
        pytest.param(f"/{SYSTEMD}/cri-containerd-{ID}.scope", id="two slashes"),
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope/", id="a slash at the end"),
        pytest.param(f"{SYSTEMD[1:]}/cri-containerd-{ID}.scope", id="not absolute"),
        pytest.param(f"{SYSTEMD}\0/cri-containerd-{ID}.scope", id="a nul"),
        pytest.param(f"{SYSTEMD}/x\n0::{SYSTEMD}/cri-containerd-{ID}.scope", id="two lines"),
        pytest.param(f"{SYSTEMD}/\u202ecri-containerd-{ID}.scope", id="letters that hide"),
        pytest.param(f"/{'x' * 2000}{SYSTEMD}/cri-containerd-{ID}.scope", id="longer than any"),
    ],
)
def test_everything_else_is_refused(group: str) -> None:
    with pytest.raises(LimitError):
        check_group(request(group))


@pytest.mark.parametrize("container_id", ["", "web", ID[:12], ID.upper(), f"{ID}\n", "." * 64])
def test_an_id_that_no_engine_gives_is_refused(container_id: str) -> None:
    with pytest.raises(LimitError):
        check_group(request(f"{SYSTEMD}/cri-containerd-{container_id}.scope", container_id))


def test_a_request_is_read() -> None:
    content = {"verb": "limit", "container": ID, "cgroup": "/group", "memory": f"required,{gpu(0).uuid}=1073741824"}
    assert parse_request(content) == LimitRequest(ID, "/group", GivenMemory({gpu(0).uuid: 1 << 30}, is_required=True))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"container": ID, "cgroup": "/", "memory": {gpu(0).uuid: 1}}, id="memory as an object"),
        pytest.param({"container": 1, "cgroup": "/", "memory": f"{gpu(0).uuid}=1"}, id="id as a number"),
        pytest.param({"container": ID, "cgroup": None, "memory": f"{gpu(0).uuid}=1"}, id="no group"),
        pytest.param({"container": ID, "cgroup": "/", "memory": ""}, id="no memory"),
    ],
)
def test_what_the_hook_does_not_write_is_an_error(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"texts|does not name"):
        parse_request(content)


_PIECES = (
    *("", ".", "..", "/", "//", "\0", "\n", "0::/", "kubepods.slice", "kubepods", "system.slice", "user@0.service"),
    *(f"pod{POD}", f"kubepods-pod{POD_SLICE}.slice", f"kubepods-pod{'f' * 8}_0000_4000_8000_{'0' * 12}.slice"),
    *(
        ID,
        OTHER,
        f"cri-containerd-{ID}.scope",
        f"cri-containerd-{OTHER}.scope",
        f"crio-{ID}.scope",
        "container",
        "below",
    ),
)
# What may be taken, written in another way than the code: a pod, then the container at once, then nothing.
_OWN = re.compile(rf"(/[a-z0-9._@:-]+)*/(kubepods-)?pod[0-9a-f_-]{{36}}(\.slice)?/[a-z-]*{ID}(\.scope)?(/container)?")


@pytest.mark.parametrize("seed", range(5))
def test_no_path_of_hostile_pieces_is_taken_for_the_containers_own(seed: int) -> None:
    dice = random.Random(seed)
    taken = 0
    for _ in range(4000):
        path = "/" + "/".join(dice.choice(_PIECES) for _ in range(dice.randint(1, 6)))
        try:
            check_group(request(path))
        except LimitError:
            continue
        taken += 1
        assert _OWN.fullmatch(path), path
        assert OTHER not in path, path
        assert path.count(ID) == 1, path
        assert ".." not in path.split("/"), path
    assert taken, "nothing was taken at all"
