"""The files by which engines know devices of claims go, nothing else does, and a prepared claim keeps the daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import RemovalError
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import find_removal

from plugin.dra.domains.driver import FOLDER as DOMAIN_CLAIMS
from plugin.dra.others.driver import FOLDER as OTHER_CLAIMS
from plugin.dra.store import FOLDER as CLAIMS
from tests.playbooks.removal.node import (
    ALL,
    remove,
    set_up,
    tree,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine, Systemd


CDI = '{"containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "%s"}]}}'
OUR_HOOK = "/usr/lib/grapnel/hook/grapnel-hook"


def test_the_file_for_cdi_goes_from_where_the_hook_s_configuration_has_it(machine: Machine, engine: Systemd) -> None:
    assert engine
    set_up(machine)
    machine.write("/etc/grapnel/hook.json", '{"cdi": "/srv/cdi/ours.json"}\n')
    machine.write("/srv/cdi/ours.json", CDI % OUR_HOOK)
    remove(machine)
    assert list((machine.root / "srv/cdi").iterdir()) == []


def test_the_files_of_claims_go_with_the_daemon(machine: Machine, engine: Systemd) -> None:
    """Those of other devices and of IMEX channels have no hook, and their kinds of device are grapnel's alone."""
    assert engine
    set_up(machine)
    machine.write("/etc/grapnel/node.json", '{"cdiFolder": "/srv/cdi"}\n')
    machine.write("/srv/cdi/grapnel-claims.json", CDI % OUR_HOOK)
    machine.write("/srv/cdi/grapnel-devices.json", '{"kind": "grapnel.dev/device", "devices": []}')
    machine.write("/srv/cdi/grapnel-domains.json", '{"kind": "grapnel.dev/channel", "devices": []}')
    machine.write("/srv/cdi/theirs.json", CDI % "/usr/bin/nvidia-cdi-hook")
    remove(machine)
    assert [path.name for path in (machine.root / "srv/cdi").iterdir()] == ["theirs.json"]


def prepared(machine: Machine, *claims: str, folder: str = OTHER_CLAIMS) -> None:
    for claim in claims:
        text = json.dumps({"namespace": "ml", "name": claim}) if claim != "damaged" else "{"
        machine.write(f"/var/lib/grapnel/node/{folder}/{claim}.json", text)


@pytest.mark.parametrize("folder", [CLAIMS, OTHER_CLAIMS, DOMAIN_CLAIMS])
def test_claims_of_each_driver_of_the_daemon_keep_it(machine: Machine, engine: Systemd, folder: str) -> None:
    """Those of ComputeDomains did not: a pod with a channel was left without the daemon."""
    assert engine
    set_up(machine)
    prepared(machine, "train", folder=folder)
    now = [0.0]
    clock = Clock(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(RemovalError, match=r"ml/train\. Their pods end only while"):
        remove(machine, clock=clock)


def test_the_daemon_stays_while_a_claim_is_prepared(machine: Machine, engine: Systemd) -> None:
    """A pod that no drain evicts could not end any more: nobody took its claim back."""
    assert engine
    set_up(machine)
    prepared(machine, "agent", "damaged")
    before, now = tree(machine.root), [0.0]
    clock = Clock(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(RemovalError, match=r"/other-claims/damaged.json, ml/agent\. Their pods end only while"):
        remove(machine, clock=clock)
    assert tree(machine.root) == before
    assert "claims are prepared on the node (2)" in str(find_removal(machine.host, ALL).notes)
    remove(machine, {"runtime", "hook"}, clock)


@pytest.mark.parametrize("folder", ["claims", "other-claims", "domain-claims"])
def test_claims_that_a_kubelet_gives_back_soon_are_waited_for(machine: Machine, engine: Systemd, folder: str) -> None:
    assert engine
    set_up(machine)
    prepared(machine, "train", folder=folder)
    claim = machine.root / f"var/lib/grapnel/node/{folder}/train.json"
    remove(machine, clock=Clock(sleep=lambda _seconds: claim.unlink()))
    assert not (machine.root / "var/lib/grapnel/node").exists()


def test_a_file_with_the_name_of_that_of_other_devices_stays_where_others_made_it(
    machine: Machine, engine: Systemd
) -> None:
    assert engine
    set_up(machine)
    machine.write("/var/run/cdi/grapnel-devices.json", '{"kind": "example.com/device", "devices": []}')
    remove(machine)
    assert [path.name for path in (machine.root / "var/run/cdi").iterdir()] == ["grapnel-devices.json"]


@pytest.mark.parametrize("named", ["/srv/data", "/srv/data/theirs.json", "/srv/data/link", "/srv/data/note", "/srv/"])
def test_nothing_else_goes_that_a_hook_s_configuration_names(machine: Machine, engine: Systemd, named: str) -> None:
    """A folder that was named there by mistake went with all that was in it."""
    assert engine
    set_up(machine)
    machine.write("/etc/grapnel/hook.json", f'{{"cdi": "{named}"}}\n')
    machine.write("/srv/data/theirs.json", CDI % "/usr/bin/nvidia-cdi-hook")
    machine.write("/srv/data/note", "a note\n")
    machine.write("/srv/ours.json", CDI % OUR_HOOK)
    (machine.root / "srv/data/link").symlink_to("../ours.json")
    before = tree(machine.root / "srv")
    remove(machine)
    assert tree(machine.root / "srv") == before
    assert (machine.root / "srv/data/link").is_symlink()
