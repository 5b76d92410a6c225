"""What control groups tell of a process.

The paths are what kubelets with both drivers make (pkg/kubelet/cm/cgroup_manager_linux.go there) and what containerd,
CRI-O and cri-dockerd put below them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.holdings.holders.cgroup import Place, parse_cgroup

ID, OTHER_ID = "4f1c" * 16, "09ab" * 16
UID, OTHER_UID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a10", "11111111-2222-4333-8444-555566667777"
SYSTEMD_UID, OTHER_SYSTEMD_UID = UID.replace("-", "_"), OTHER_UID.replace("-", "_")
MIRROR_UID = "5a1c0e9b7d3f42688bb0c1d2e3f40516"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param(
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
            Place(f"cri-containerd-{ID}.scope", UID, ID),
            id="v2, systemd driver, containerd",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/crio-{ID}.scope/container\n",
            Place(f"crio-{ID}.scope", UID, ID),
            id="v2, systemd driver, cri-o, guaranteed, own child group",
        ),
        pytest.param(f"0::/kubepods/besteffort/pod{UID}/{ID}\n", Place(None, UID, ID), id="v2, cgroupfs driver"),
        pytest.param(
            f"12:memory:/kubepods/burstable/pod{UID}/{ID}\n1:name=systemd:/kubepods/burstable/pod{UID}/{ID}\n0::/\n",
            Place(None, UID, ID),
            id="v1, cgroupfs driver",
        ),
        pytest.param(
            "5:pids:/\n"
            f"4:memory:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
            Place(f"cri-containerd-{ID}.scope", UID, ID),
            id="v1, systemd driver, a controller without the pod first",
        ),
        pytest.param(
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope",
            Place(f"cri-containerd-{ID}.scope", UID, ID),
            id="below a cgroup root",
        ),
        pytest.param(
            f"0::/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{ID}",
            Place("containerd.service", UID, ID),
            id="engine and kubelet with different drivers",
        ),
        pytest.param(f"0::/kubepods/pod{MIRROR_UID}/{ID}", Place(None, MIRROR_UID, ID), id="a mirror pod"),
        pytest.param(
            f"0::/../../kubepods/pod{UID}/{ID}", Place(None, UID, ID), id="seen from another control group name space"
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD_UID}.slice/docker-{ID}.scope\n",
            Place(f"docker-{ID}.scope", UID, ID),
            id="v2, systemd driver, cri-dockerd",
        ),
        pytest.param(
            f"4:memory:/kubepods/burstable/pod{UID}/crio-{ID}\n0::/kubepods/burstable/pod{UID}/crio-{ID}\n",
            Place(None, UID, ID),
            id="v1 beside v2, cgroupfs driver, cri-o",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope/docker/{OTHER_ID}\n",
            Place(f"cri-containerd-{ID}.scope", UID, ID),
            id="docker in a pod: the outer container",
        ),
        pytest.param(
            f"0::/kubepods/pod{UID}/{ID}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{OTHER_SYSTEMD_UID}.slice"
            f"/cri-containerd-{OTHER_ID}.scope\n",
            Place(f"cri-containerd-{OTHER_ID}.scope", UID, ID),
            id="a kubelet in a pod: the outer pod",
        ),
        pytest.param(
            f"0::/kubepods/burstable/pod{UID}/{ID}/system.slice/app.service\n",
            Place("app.service", UID, ID),
            id="systemd in a pod",
        ),
        pytest.param(
            f"0::/docker/{OTHER_ID}/kubelet/kubepods/pod{UID}/{ID}\n",
            Place(None, UID, ID),
            id="a node that is a container itself: the container of the pod",
        ),
        pytest.param(
            f"0::/../cri-containerd-{ID}.scope", Place(f"cri-containerd-{ID}.scope", None, ID), id="a sibling"
        ),
        pytest.param(
            f"0::/kubepods/pod{UID}/{ID} (deleted)\n", Place(None, UID, ID), id="the container was removed meanwhile"
        ),
        pytest.param(f"0::/kubepods/pod{UID}\n", Place(None, UID, None), id="a pod's own control group"),
        pytest.param(
            f"5:cpu:/kubepods/pod{UID}/{ID}\n4:memory:/kubepods/pod{OTHER_UID}/{ID}\n",
            Place(),
            id="hierarchies that name two pods tell of neither",
        ),
        pytest.param(
            f"5:cpu:/kubepods/pod{UID}/{ID}\n4:memory:/kubepods/pod{UID}/{OTHER_ID}\n",
            Place(),
            id="hierarchies that name two containers tell of neither",
        ),
        pytest.param(
            f"5:cpu:/kubepods/pod{UID}/{ID}\n1:name=systemd:/docker/{OTHER_ID}\n",
            Place(None, UID, ID),
            id="a hierarchy outside of the pod is not heard",
        ),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}0\n", Place(None, UID, None), id="too many digits are no container"),
        pytest.param(
            f"0::/machine.slice/libpod-{ID}.scope",
            Place(f"libpod-{ID}.scope", None, ID),
            id="podman: no pod of a kubelet",
        ),
        pytest.param(f"0::/system.slice/docker-{ID}.scope", Place(f"docker-{ID}.scope", None, ID), id="docker"),
        pytest.param(
            "0::/system.slice/nvidia-persistenced.service", Place("nvidia-persistenced.service"), id="a service"
        ),
        pytest.param("0::/user.slice/user-1000.slice/session-3.scope", Place("session-3.scope"), id="somebody's shell"),
        pytest.param(
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/sshd.service",
            Place("user@1000.service"),
            id="what a user's own manager runs, whatever it is called",
        ),
        pytest.param(
            f"0::/user.slice/user@1000.service/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope",
            Place("user@1000.service", None, ID),
            id="a pod that a user made up",
        ),
        pytest.param(
            "0::/user.slice/user@1000.service/x\x85/grapnel-node.service\n",
            Place("user@1000.service"),
            id="a name that looks like the end of a line",
        ),
        pytest.param("0::/system.slice/podman-x.service", Place("podman-x.service"), id="a name that begins with pod"),
        pytest.param("0::/", Place(), id="the root"),
        pytest.param("", Place(), id="a process that ended"),
    ],
)
def test_control_groups_tell_the_place(text: str, place: Place) -> None:
    assert parse_cgroup(text) == place


IDS = st.text("0123456789abcdef", min_size=64, max_size=64)
CLASSES = st.sampled_from(["", "burstable", "besteffort"])
ENGINES = st.sampled_from(["cri-containerd", "crio", "docker"])
PREFIXES = st.sampled_from(["", "/kubelet", "/../..", "/system.slice/k3s.service"])
BELOW = st.sampled_from(["", "/container", "/init.scope", "/system.slice/app.service"])
FILES = st.sampled_from(["0::{}\n", "7:pids:/\n6:memory:{}\n0::/\n", "6:memory:{0}\n1:name=systemd:{0}\n"])


def of_systemd(prefix: str, qos: str, uid: str, name: str) -> str:
    pods = f"kubepods-{qos}" if qos else "kubepods"
    parent = f"{prefix}/kubepods.slice" + (f"/{pods}.slice" if qos else "")
    return f"{parent}/{pods}-pod{uid.replace('-', '_')}.slice/{name}.scope"


def of_cgroupfs(prefix: str, qos: str, uid: str, name: str) -> str:
    return f"{prefix}/kubepods{f'/{qos}' if qos else ''}/pod{uid}/{name}"


@given(st.data(), st.uuids().map(str), IDS)
def test_every_combination_of_driver_class_and_engine_is_understood(
    data: st.DataObject, uid: str, container_id: str
) -> None:
    name = data.draw(st.one_of(st.just(container_id), ENGINES.map(lambda engine: f"{engine}-{container_id}")))
    make_path = data.draw(st.sampled_from([of_systemd, of_cgroupfs]))
    path = make_path(data.draw(PREFIXES), data.draw(CLASSES), uid, name) + data.draw(BELOW)
    place = parse_cgroup(data.draw(FILES).format(path))
    assert (place.pod_uid, place.container_id) == (uid, container_id)


@given(st.text())
def test_any_text_is_a_place_and_never_an_error(text: str) -> None:
    place = parse_cgroup(text)
    assert place.pod_uid is None or f"pod{place.pod_uid}".replace("-", "") in text.replace("-", "").replace("_", "")
    assert place.container_id is None or place.container_id in text
