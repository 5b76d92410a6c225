"""Trouble that only a module of DKMS can have, on a booted node: power cuts, full disks, another module, its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.driven_node import HOME, DrivenNode, driven_node
from tests.playbooks.staging.small_driver import NEW, OLD

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]  # several modules are built

CERTIFICATE = "openssl req -new -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=Site Operations/' -outform DER"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenNode]:
    with driven_node(DrivenNode, "dkmscut", tmp_path_factory.mktemp("driver")) as made:
        yield made


@pytest.fixture
def node(installed: DrivenNode) -> DrivenNode:
    """The node with the older driver in service."""
    if installed.sh("cat /sys/module/nvidia/version || :").strip() != OLD:
        installed.swap(installed.prepare(OLD))
    installed.assert_has(OLD)
    return installed


def test_a_swap_that_is_killed_around_dkms_comes_to_its_end(node: DrivenNode) -> None:
    """Twice on the way there, and with the whole node on the way back."""
    identifier = node.prepare(NEW)

    node.cut("nvidia-lab-dkms.postinst", "swap", identifier)  # the package is unpacked, dkms does not know it
    node.cut("depmod", "swap", identifier)  # dkms has copied the modules, and they are not indexed
    there = node.swap(identifier)
    node.assert_has(NEW)
    node.cut_power("depmod", "back")
    back = node.back()

    assert (there["state"], there["reason"]) == ("done", "")
    assert (back["state"], back["reason"]) == ("done", "")
    node.assert_has(OLD)


def test_another_module_that_comes_first_is_put_aside_by_dkms(node: DrivenNode) -> None:
    """Somebody has put a module where depmod looks first; the node has the one that the record says."""
    identifier, kernel = node.prepare(NEW), node.node.kernel_release
    place = f"/lib/modules/{kernel}/somebody"
    node.sh(
        f"mkdir {place}; cp $(modinfo --field filename nvidia) {place}/; "
        "echo search somebody updates/dkms built-in > /etc/depmod.d/0-somebody.conf"
    )

    there = node.swap(identifier)
    node.assert_has(NEW)
    back = node.back()
    node.sh(f"rm -r {place} /etc/depmod.d/0-somebody.conf; depmod {kernel}")

    assert (there["state"], there["reason"]) == ("done", "")
    assert (back["state"], back["reason"]) == ("done", "")
    node.assert_has(OLD)


def test_modules_are_signed_with_the_site_s_key_and_with_no_other(node: DrivenNode) -> None:
    own, stranger = (f"/etc/keys/{name}" for name in ("own", "stranger"))
    make = f"{CERTIFICATE} -keyout $k.key -out $k.der 2>/dev/null; chmod 600 $k.key"
    node.sh(f"mkdir -m 700 -p /etc/keys; for k in {own} {stranger}; do {make}; done")
    sign = {"key": f"{own}.key", "certificate": f"{own}.der"}
    config = node.node.root / "etc/dkms/framework.conf.d/other.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"mok_signing_key={stranger}.key\nmok_certificate={stranger}.der\n")

    forged = node.call("stage", given=node.change(NEW, sign=sign))
    config.unlink()
    identifier = node.prepare(NEW, sign=sign)
    record = node.swap(identifier)
    signer = node.sh("modinfo --field signer nvidia").strip()
    kept = node.sh(f"grep -rl 'PRIVATE KEY' {HOME} /var/log /var/lib/dkms/nvidia-lab || :")
    node.assert_has(NEW)
    back = node.back()
    node.assert_has(OLD)
    later = node.swap(node.prepare(OLD, sign=sign))
    later_signer = node.sh("modinfo --field signer nvidia").strip()
    node.sh("rm -r /etc/keys")

    assert [one["code"] for one in forged["findings"]] == ["module-unfit"], forged
    assert f"is not signed by the key of {own}.der" in forged["findings"][0]["message"]
    assert record["state"] == "done", record["reason"]
    assert signer == "Site Operations"
    assert kept == ""
    assert back["state"] == "done", back["reason"]
    node.assert_has(OLD)
    assert (later["state"], later["reason"]) == ("done", "")
    assert later_signer == "Site Operations", "the driver that is in service is signed by a key that is declared later"
