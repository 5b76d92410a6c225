"""Which ComputeDomain a claim is of, and whether this node may give it the channel. Pure.

Forms are those of NVIDIA's driver (api/nvidia.com/resource/v1beta1 and cmd/compute-domain-kubelet-plugin at 9593204).
Who has which clique is the controller's word, in the domain's status, which no author of pods can write. A claim says
by its config which domain it wants, and that has to be one of its own namespace.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from plugin.base.documents import list_of, member, members, text
from plugin.base.errors import ClaimError
from plugin.dra.configs import API_VERSION
from plugin.dra.devices import DraDevice
from plugin.dra.devices import text as attribute
from plugin.driver.topology.facts import NO_CLUSTER
from plugin.publication.node_object.api.messages import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.inventory import ControlNode, Inventory
    from plugin.dra.claims import ClaimName

    Json = dict[str, Any]

DRIVER = "compute-domain.nvidia.com"
CHANNEL = "channel-0"  # the one that NVIDIA's class selects
FILE, KIND = "grapnel-domains.json", "grapnel.dev/channel"
DOMAIN_NAME = "grapnel.dev/compute-domain"  # annotation of claims, by which a node finds the domain without a list
_CONFIG = "ComputeDomainChannelConfig"
_KEYS = {"apiVersion", "kind", "domainID", "allocationMode"}
_SINGLE = "Single"
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_TEXT = text(253)
_HINT = "make the claim from the ResourceClaimTemplate that the ComputeDomain names"


class Domain(NamedTuple):
    """A ComputeDomain, as a claim names it; it is of the claim's namespace."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"ComputeDomain {self.namespace}/{self.name}"


class Place(NamedTuple):
    """A node in its clique, and the channel that it has; `clique` "" where GPUs are in none, or in several."""

    node: str
    clique: str = ""
    channel: ControlNode | None = None


def place_of(node: str, inventory: Inventory) -> Place:
    """Return where a node is, as far as the driver says."""
    cliques = {each.fabric for each in inventory.topology.facts.gpus if each.fabric is not None}
    clique = cliques.pop() if len(cliques) == 1 else ""
    if clique.startswith(NO_CLUSTER):
        clique = ""
    channel = next((each.node for each in inventory.channels if each.number == 0), None)
    return Place(node, clique, channel)


def domain_of(document: Mapping[str, Any], claim: ClaimName) -> Domain:
    """Return the domain that a claim is of; raises ClaimError where it says none, or asks for what is not served."""
    try:
        metadata = member(document, "metadata", members)
        name = member(member(metadata, "annotations", members, {}), DOMAIN_NAME, _TEXT, "")
        allocation = member(member(document, "status", members, {}), "allocation", members, {})
        devices = member(allocation, "devices", members, {})
        results = [row for row in member(devices, "results", list_of(members), ()) if row.get("driver") == DRIVER]
        opaque = [member(row, "opaque", members) for row in member(devices, "config", list_of(members), ())]
        configs = [member(each, "parameters", members) for each in opaque if each.get("driver") == DRIVER]
    except ValueError as error:
        raise ClaimError(f"{claim} has no form that is known: {error}") from error
    if len(configs) != 1 or not _NAME.fullmatch(name):
        raise ClaimError(f"{claim} does not say which ComputeDomain it is of", _HINT)
    if any(row.get("adminAccess") for row in results):
        raise ClaimError(f"{claim} asks for a channel by adminAccess: it would be in a domain of others", _HINT)
    config = configs[0]
    if config.get("apiVersion") != API_VERSION or config.get("kind") != _CONFIG or not config.keys() <= _KEYS:
        raise ClaimError(f"{claim} has a config that is no {_CONFIG} of {API_VERSION}", _HINT)
    if config.get("allocationMode", _SINGLE) not in {"", _SINGLE}:
        raise ClaimError(f"{claim} asks for all IMEX channels: a claim has channel 0 alone", "allocationMode: Single")
    uid = config.get("domainID")
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        raise ClaimError(f"{claim} has a domainID that is no uid", _HINT)
    return Domain(claim.namespace, name, uid)


def without_configs(document: Mapping[str, Any]) -> Json:
    """Return a claim without configs, once it is known which domain it is of."""
    status = document.get("status") or {}
    allocation = status.get("allocation") or {}
    devices = {key: value for key, value in (allocation.get("devices") or {}).items() if key != "config"}
    return {**document, "status": {**status, "allocation": {**allocation, "devices": devices}}}


def read_domain(domain: Domain) -> Request:
    """Ask for a domain."""
    path = f"/apis/{API_VERSION}/namespaces/{quote(domain.namespace)}/computedomains/{quote(domain.name)}"
    return Request("GET", path, "get", "computedomains")


def why_not_in(document: Mapping[str, Any], domain: Domain, place: Place) -> str:
    """Return why a node may not be in a domain now, "" where it may. `document` is the ComputeDomain."""
    try:
        metadata = member(document, "metadata", members)
        found = member(metadata, "namespace", _TEXT), member(metadata, "name", _TEXT), member(metadata, "uid", _TEXT)
        status = member(document, "status", members, {})
        rows = member(status, "nodes", list_of(members), ())
        entries = {member(row, "name", _TEXT): member(row, "cliqueID", _TEXT, "") for row in rows}
    except ValueError as error:
        return f"{domain} has no form that is known: {error}"
    if found != domain:
        return f"{domain} is another one by now"
    if metadata.get("deletionTimestamp"):
        return f"{domain} is being deleted"
    if place.node not in entries:
        said = status.get("message")
        words = f": {said[:200]!a}" if isinstance(said, str) and said else ""
        return f"the controller has not put {place.node} into {domain}{words}"
    if not place.clique or entries[place.node] != place.clique:
        return f"{place.node} is in clique {place.clique or 'none'}, and {domain} has it in {entries[place.node]!a:.80}"
    return ""


def channel_device(place: Place, domain: str, unhealthy: str) -> DraDevice | None:
    """Return the channel as slices have it; None for a node that has none, or is in no clique.

    `domain` is the uid of the one that has it, "" while none has. The controller goes by it: no other domain is in
    this clique before all of its nodes have said that they are free.
    """
    if place.channel is None or not place.clique:
        return None
    shown: dict[str, Json] = {"type": attribute("channel"), "id": {"int": 0}, "clique": attribute(place.clique)}
    if domain:
        shown["domain"] = attribute(domain)
    nodes = ((f"/dev/{place.channel.name}", place.channel.path),)
    return DraDevice(CHANNEL, CHANNEL, (CHANNEL,), nodes, shown, {}, unhealthy)
