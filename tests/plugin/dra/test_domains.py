"""Which ComputeDomain a claim is of, and whether a node may give it the channel."""

from __future__ import annotations

from typing import Any

import pytest

from plugin.base.errors import ClaimError
from plugin.devices.inventory import ControlNode, ImexChannel, Inventory
from plugin.dra.claims import ClaimName, find_results
from plugin.dra.domains.decision import (
    DRIVER,
    Domain,
    Place,
    channel_device,
    domain_of,
    place_of,
    why_not_in,
    without_configs,
)
from plugin.driver.topology.facts import NO_CLUSTER, GpuLinks, LinkFacts
from plugin.driver.topology.machine import Topology

UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
CLAIM = ClaimName("team-a", "worker-0-channel-x7k2p", "9a0b7c6d-1e2f-4a3b-8c4d-5e6f7a8b9c0d")
DOMAIN = Domain("team-a", "training", UID)
CLUSTER = "8f1b2c3d-0000-4000-8000-00000000000a"
CLIQUE = f"{CLUSTER}.7"
NODE = ControlNode("nvidia-caps-imex-channels/channel0", "/dev/nvidia-caps-imex-channels/channel0")
PLACE = Place("rack1-03", CLIQUE, NODE)
PARAMETERS = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomainChannelConfig",
    "domainID": UID,
    "allocationMode": "Single",
}


def claim(*, name: str = "training", result: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
    config = {"opaque": {"driver": DRIVER, "parameters": {**PARAMETERS, **parameters}}, "source": "FromClaim"}
    row = {"request": "channel", "driver": DRIVER, "pool": "rack1-03", "device": "channel-0", **(result or {})}
    annotations = {"grapnel.dev/compute-domain": name} if name else {}
    metadata = {"namespace": CLAIM.namespace, "name": CLAIM.name, "uid": CLAIM.uid, "annotations": annotations}
    return {
        "metadata": metadata,
        "status": {"allocation": {"devices": {"results": [row], "config": [config]}}},
    }


def domain(*nodes: tuple[str, str], uid: str = UID, message: str = "", **metadata: str) -> dict[str, Any]:
    rows = [{"name": name, "cliqueID": clique, "ipAddress": "10.0.0.1"} for name, clique in nodes]
    return {
        "metadata": {"namespace": "team-a", "name": "training", "uid": uid, **metadata},
        "status": {"status": "NotReady", "message": message, "nodes": rows},
    }


def inventory(*fabrics: str | None, has_channel: bool = True, number: int = 0) -> Inventory:
    facts = LinkFacts(tuple(GpuLinks(f"GPU-{number}", fabric=each) for number, each in enumerate(fabrics)))
    return Inventory(topology=Topology(facts=facts), channels=(ImexChannel(number, NODE),) if has_channel else ())


def test_a_claim_of_the_domains_template_says_its_domain_and_has_the_channel() -> None:
    document = claim()
    assert domain_of(document, CLAIM) == DOMAIN
    (result,) = find_results(without_configs(document), CLAIM, DRIVER)
    assert (result.device, result.configs) == ("channel-0", ())


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (claim(name=""), "which ComputeDomain"),
        (claim(name="../../secrets/x"), "which ComputeDomain"),
        (claim(domainID="training"), "no uid"),
        (claim(domainID=None), "no uid"),
        (claim(kind="ComputeDomainDaemonConfig"), "no ComputeDomainChannelConfig"),
        (claim(apiVersion="resource.nvidia.com/v1"), "no ComputeDomainChannelConfig"),
        (claim(channels=[0, 1]), "no ComputeDomainChannelConfig"),
        (claim(allocationMode="All"), "channel 0 alone"),
        (claim(result={"adminAccess": True}), "adminAccess"),
        ({"metadata": {}, "status": {"allocation": {"devices": {"results": "all"}}}}, "no form"),
    ],
)
def test_a_claim_that_is_not_of_the_template_is_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(ClaimError, match=why):
        domain_of(document, CLAIM)


def test_two_configs_say_no_domain() -> None:
    document = claim()
    document["status"]["allocation"]["devices"]["config"] *= 2
    with pytest.raises(ClaimError, match="which ComputeDomain"):
        domain_of(document, CLAIM)


def test_a_claim_names_domains_of_its_own_namespace_alone() -> None:
    """Whoever knows the uid of a domain of others asks for one of that name in his own namespace, which has another."""
    found = domain(("rack1-03", CLIQUE), uid="11111111-2222-4333-8444-555555555555")
    assert "another one" in why_not_in(found, DOMAIN, PLACE)
    elsewhere = domain(("rack1-03", CLIQUE), namespace="team-b")
    assert "another one" in why_not_in(elsewhere, DOMAIN, PLACE)


def test_a_node_is_in_a_domain_that_has_it_in_its_clique() -> None:
    assert why_not_in(domain(("rack1-02", CLIQUE), ("rack1-03", CLIQUE)), DOMAIN, PLACE) == ""


@pytest.mark.parametrize(
    ("document", "place", "why"),
    [
        (domain(), PLACE, "has not put rack1-03"),
        (domain(("rack1-02", CLIQUE), message="the clique is another domain's"), PLACE, "the clique is another"),
        (domain(("rack1-03", f"{CLUSTER}.8")), PLACE, "is in clique"),
        (domain(("rack1-03", "")), PLACE._replace(clique=""), "clique none"),
        (domain(("rack1-03", CLIQUE), deletionTimestamp="2026-11-30T12:00:00Z"), PLACE, "being deleted"),
        ({"metadata": {}}, PLACE, "no form"),
    ],
)
def test_a_node_that_the_controller_has_not_put_there_is_not(document: dict[str, Any], place: Place, why: str) -> None:
    assert why in why_not_in(document, DOMAIN, place)


def test_a_node_publishes_its_channel_its_clique_and_whose_it_is() -> None:
    free = channel_device(place_of("rack1-03", inventory(CLIQUE, CLIQUE)), "", "")
    assert free is not None
    assert free.attributes == {
        "type": {"string": "channel"},
        "id": {"int": 0},
        "clique": {"string": CLIQUE},
    }
    had = channel_device(PLACE, UID, "")
    assert had is not None
    assert had.attributes["domain"] == {"string": UID}


@pytest.mark.parametrize(
    "found",
    [
        inventory(),
        inventory(None, None),
        inventory(CLIQUE, f"{CLUSTER}.8"),
        inventory(CLIQUE, ""),
        inventory(""),
        inventory(f"{NO_CLUSTER}.0"),  # a machine by itself: its clique is no other machine's
        inventory(CLIQUE, has_channel=False),
        inventory(CLIQUE, number=1),
    ],
)
def test_a_node_without_channel_or_one_clique_publishes_none(found: Inventory) -> None:
    assert channel_device(place_of("rack1-03", found), "", "") is None
