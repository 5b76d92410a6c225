"""The pages of complaints: each row says what shows it, and no report is forgotten."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.house.named_tests import REPORT, ROOT, TEST, missing_tests, reports_of, rows

if TYPE_CHECKING:
    from pathlib import Path

PAGES: Final = (ROOT / "docs" / "complaints.md", *sorted((ROOT / "docs" / "complaints").glob("*.md")))
ROWS: Final = [row for page in PAGES for row in rows(page)]
COLUMNS: Final = 3
LINK: Final = re.compile(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
# What people had reported when this was written, by repository.
REPORTS: Final = {
    "ai-dynamo/aiperf": "1422",
    "akash-network/docs": "276",
    "AliyunContainerService/gpushare-device-plugin": "26 61",
    "AliyunContainerService/gpushare-scheduler-extender": "143 219",
    "ansible-collections/kubernetes.core": "769 792",
    "ansible/ansible": "7019 12735 21965 82267",
    "ansible/ansible-runner": "273 724 998 1343 1381",
    "apptainer/apptainer": "3738",
    "bottlerocket-os/bottlerocket": "3718 3960 4052 4250",
    "cncf-tags/container-device-interface": "203 225",
    "containers/podman": "23935",
    "fedora-selinux/selinux-policy": "1695",
    "google/gvisor": "9215 13034 13284",
    "GoogleCloudPlatform/container-engine-accelerators": "202",
    "k0sproject/k0s": "6547",
    "kai-scheduler/KAI-Scheduler": "2153",
    "kserve/kserve": "5711",
    "kubeflow/kubeflow": "6451",
    "kubernetes-sigs/dra-driver-nvidia-gpu": """
        289 330 360 427 473 605 663 692 840 850 894 928 951 1008 1080 1100 1123 1144 1242 1243 1283
        1417 1447 1455
    """,
    "kubernetes-sigs/dra-example-driver": "249",
    "kubernetes-sigs/kubespray": "6545 9195 11944 12277",
    "kubernetes/kubernetes": """
        60176 63048 81442 82606 107244 109595 117435 118559 119248 119722 120146 121994 124345
        125501 125579 127803 133382 138446 140323
    """,
    "METR/hawk": "273",
    "moby/moby": "47704 51942",
    "nebius/soperator": "634",
    "NixOS/nixpkgs": "366109",
    "NVIDIA/aicr": "332 1327",
    "NVIDIA/ansible-role-nvidia-driver": "11 44",
    "NVIDIA/DCGM": "313",
    "NVIDIA/dcgm-exporter": "127 151 307 340 342 655 702 709 714",
    "NVIDIA/enroot": "106",
    "NVIDIA/go-gpuallocator": "18 20 44 80",
    "NVIDIA/gpu-operator": """
        135 154 173 188 250 360 403 413 421 473 475 485 594 598 615 700 712 716 730 991 1065 1144
        1309 1606 1651 1704 1738 2168 2573
    """,
    "NVIDIA/k8s-device-plugin": """
        11 16 47 87 99 111 135 189 203 221 225 229 234 240 254 302 389 397 403 406 415 426 439 460
        519 548 569 647 679 685 762 767 774 900 992 1014 1015 1094 1228 1294 1364 1422 1595 1605
        1698 1786 1787 1929 1930 2038
    """,
    "NVIDIA/k8s-driver-manager": "213",
    "NVIDIA/libnvidia-container": "115 123 154",
    "NVIDIA/mig-parted": "181",
    "NVIDIA/NemoClaw": "4733",
    "NVIDIA/nvidia-container-runtime": "42",
    "NVIDIA/nvidia-container-toolkit": """
        48 71 202 237 251 267 433 435 494 580 648 871 944 975 982 1040 1163 1174 1222 1227 1328 1385
        1397 1470 1487 1526 1555 1559 1562 1611 1621 1795 1828 1854 1899 1908 1956 1967 1979 1980
        2026 2102
    """,
    "NVIDIA/nvidia-docker": "628 723 900 1124 1243 1435 1470 1591 1642 1671 1691 1730 1788",
    "NVIDIA/NVSentinel": "450 1423 1642",
    "openshift/sriov-network-operator": "812",
    "pando85/homelab": "4110",
    "pelagos-containers/pelagos": "516",
    "portainer/portainer": "7806",
    "Project-HAMi/HAMi": "404 777 810 1081 1130 1367 1461 1764 2066 2072 2200 2201 2213 2265 2641",
    "Project-HAMi/HAMi-core": "61 142 169",
    "rancher/system-upgrade-controller": "71 78",
    "siderolabs/extensions": "399 940",
    "siderolabs/talos": "10980",
    "stackhpc/ansible-slurm-appliance": "315",
    "void-linux/void-packages": "4651",
    "volcano-sh/volcano": "2579 3948",
    "zalando-incubator/kubernetes-on-aws": "7065",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_every_complaint_has_what_shows_the_answer(row: str) -> None:
    cells = row.strip("|").split(" | ")

    assert len(cells) == COLUMNS
    assert TEST.findall(cells[2]) or LINK.findall(cells[2]), "neither a test nor a page shows this"
    assert missing_tests(row) == []


def test_every_report_is_on_a_page() -> None:
    assert reports_of(REPORTS) - set(REPORT.findall("\n".join(ROWS))) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_heading_that_is_there(page: Path) -> None:
    lost = [
        f"{path}#{anchor}"
        for path, anchor in LINK.findall(page.read_text())
        if anchor and anchor not in _anchors((page.parent / path if path else page).read_text())
    ]

    assert lost == []


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in HEADING.findall(text)}
