"""Which ComputeDomain has which NVLink clique: no two of them, whatever users and nodes say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.cluster.kubernetes.objects.claims import DescribedSlice
from provision.cluster.kubernetes.objects.core import Metadata
from provision.controller.domains.decide import Hold, admit, left_by, status_of, why_not_free, why_not_served
from provision.controller.domains.objects import (
    DRIVER,
    Channel,
    ChannelClaim,
    ClaimAllocation,
    ComputeDomain,
    DomainSpec,
    Place,
    TemplateName,
    Wish,
    place_of,
    template_of,
    wish_of,
)

BEGAN = datetime(2026, 11, 30, tzinfo=UTC)
A, B = "uid-a", "uid-b"
X, Y = "8f1b2c3d-0000-4000-8000-00000000000a.1", "8f1b2c3d-0000-4000-8000-00000000000a.2"


def domain(uid: str = A, *, age: int = 0, nodes: int = 0, mode: str = "Single", **metadata: Any) -> ComputeDomain:
    return ComputeDomain(
        metadata=Metadata(
            name=f"name-{uid}", namespace="team", uid=uid, creation_timestamp=BEGAN - timedelta(age), **metadata
        ),
        spec=DomainSpec(
            num_nodes=nodes,
            channel=Channel(resource_claim_template=TemplateName(name="channel"), allocation_mode=mode),
        ),
    )


def hold(uid: str, *nodes: str) -> Hold:
    return Hold(domain=uid, namespace="team", name=f"name-{uid}", nodes=nodes)


def places(**cliques: str) -> dict[str, Place]:
    return {node: Place(node, clique) for node, clique in cliques.items()}


def test_a_clique_is_the_first_domains_whose_claim_has_a_node_of_it() -> None:
    domains = {A: domain(A), B: domain(B)}
    first = admit({}, domains, [Wish("team", A, "n1")], places(n1=X, n2=X))
    assert first.ledger == {X: hold(A, "n1")}
    both = [Wish("team", A, "n1"), Wish("team", B, "n2")]
    second = admit(first.ledger, domains, both, places(n1=X, n2=X))
    assert second.ledger == first.ledger
    assert second.waits == {B: ("n2 is in a clique that another ComputeDomain has",)}


def test_the_older_domain_comes_first_and_another_clique_is_free() -> None:
    domains = {A: domain(A), B: domain(B, age=1)}
    wishes = [Wish("team", A, "n1"), Wish("team", B, "n2"), Wish("team", A, "n3")]
    found = admit({}, domains, wishes, places(n1=X, n2=X, n3=Y))
    assert found.ledger == {X: hold(B, "n2"), Y: hold(A, "n3")}


@pytest.mark.parametrize(
    "made",
    [
        domain(deletion_timestamp="2026-11-30T12:00:00Z"),
        domain(finalizers=("resource.nvidia.com/computeDomain",)),
        domain(mode="All"),
    ],
)
def test_a_domain_that_goes_or_is_not_served_is_given_nothing(made: ComputeDomain) -> None:
    assert admit({}, {A: made}, [Wish("team", A, "n1")], places(n1=X)).ledger == {}


def test_a_claim_of_another_namespace_or_of_no_domain_asks_for_nothing() -> None:
    wishes = [Wish("others", A, "n1"), Wish("team", "unknown", "n1")]
    assert admit({}, {A: domain()}, wishes, places(n1=X)).ledger == {}


def test_a_clique_of_which_a_node_says_that_a_domain_has_it_is_taken_whatever_is_remembered() -> None:
    """The ConfigMap may have been deleted while pods ran."""
    here = {"n1": Place("n1", X, B), "n2": Place("n2", X)}
    found = admit({}, {A: domain(), B: domain(B)}, [Wish("team", A, "n2")], here)
    assert found.ledger == {}
    again = admit({}, {A: domain(), B: domain(B)}, [Wish("team", A, "n2"), Wish("team", B, "n1")], here)
    assert again.ledger == {X: hold(B, "n1")}


def test_a_node_that_says_another_clique_again_and_again_takes_none_but_its_first() -> None:
    """Root of a node could take every clique for a domain, and fill the ConfigMap until none could be written."""
    ledger: dict[str, Hold] = {}
    for number in range(5):
        clique = f"8f1b2c3d-0000-4000-8000-00000000000a.{number}"
        found = admit(ledger, {A: domain()}, [Wish("team", A, "n1")], places(n1=clique))
        ledger = found.ledger
    assert ledger == {"8f1b2c3d-0000-4000-8000-00000000000a.0": hold(A, "n1")}
    assert "was given to a ComputeDomain in another clique" in found.waits[A][0]


def test_a_clique_is_free_when_each_node_of_it_says_so_or_is_no_node_any_more() -> None:
    had = hold(A, "n1", "n2")
    assert left_by({X: had}, {A: domain()}) == {}
    assert left_by({X: had}, {}) == {X: had}
    assert left_by({X: had}, {A: domain(deletion_timestamp="2026-11-30T12:00:00Z")}) == {X: had}
    free, busy = Place("n1", X), Place("n1", X, A)
    assert "still has claims" in why_not_free(had, {"n1": busy, "n2": Place("n2", X)}, ())
    assert "publishes no channel" in why_not_free(had, {"n1": free}, ())
    assert why_not_free(had, {"n1": free}, {"n2"}) == ""
    assert why_not_free(had, {"n1": free, "n2": Place("n2", X)}, ()) == ""


def test_a_status_says_who_is_in_and_is_ready_when_all_are() -> None:
    made = domain(nodes=2)
    decision = admit({}, {A: made}, [Wish("team", A, "n2"), Wish("team", A, "n1")], places(n1=X, n2=Y))
    here = {"n1": Place("n1", X, A), "n2": Place("n2", Y)}
    status = status_of(made, decision, here, {"n1": "10.0.0.1"}, "")
    assert status["status"] == "NotReady"
    assert [(each["name"], each["cliqueID"], each["index"], each["status"]) for each in status["nodes"]] == [
        ("n1", X, 0, "Ready"),
        ("n2", Y, 1, "NotReady"),
    ]
    ready = status_of(made, decision, {**here, "n2": Place("n2", Y, A)}, {}, "")
    assert (ready["status"], ready["message"]) == ("Ready", "")
    assert status_of(domain(nodes=3), decision, {**here, "n2": Place("n2", Y, A)}, {}, "")["status"] == "NotReady"
    assert status_of(made, decision, {**here, "n2": Place("n2", Y, A)}, {}, "no template")["status"] == "NotReady"


def test_what_users_write_of_claims_asks_for_nothing_but_in_the_form_that_is_known() -> None:
    def claim(*results: dict[str, Any], config: object = None) -> ChannelClaim:
        parameters = {"kind": "ComputeDomainChannelConfig", "domainID": A} if config is None else config
        configs = [{"opaque": {"driver": DRIVER, "parameters": parameters}}, {"opaque": {"driver": "others.example"}}]
        allocation = {"devices": {"results": list(results), "config": configs}}
        document = {"metadata": {"namespace": "team", "name": "c"}, "status": {"allocation": allocation}}
        return msgspec.convert(document, ChannelClaim)

    given_channel = {"driver": DRIVER, "pool": "n1", "device": "channel-0"}
    assert wish_of(claim(given_channel)) == Wish("team", A, "n1")
    assert wish_of(claim()) is None
    assert wish_of(claim({**given_channel, "adminAccess": True})) is None
    assert wish_of(claim(given_channel, config=["domainID"])) is None
    twice = claim(given_channel)
    assert twice.status.allocation is not None
    devices = twice.status.allocation.devices
    both = msgspec.structs.replace(devices, config=devices.config * 2)
    status = msgspec.structs.replace(twice.status, allocation=ClaimAllocation(devices=both))
    assert wish_of(msgspec.structs.replace(twice, status=status)) is None
    assert wish_of(claim(given_channel, config={"kind": "GpuConfig", "domainID": A})) is None
    assert wish_of(claim(given_channel, config={"kind": "ComputeDomainChannelConfig", "domainID": [A]})) is None
    assert wish_of(msgspec.convert({"metadata": {}}, ChannelClaim)) is None


def test_a_node_says_where_it_is_in_a_slice_of_its_own_pool() -> None:
    def made(pool: str = "n1", **attributes: Any) -> DescribedSlice:
        device = {"name": "channel-0", "attributes": attributes}
        spec = {"driver": DRIVER, "nodeName": "n1", "pool": {"name": pool}, "devices": [device]}
        return msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, DescribedSlice)

    assert place_of(made(clique={"string": X})) == Place("n1", X)
    assert place_of(made(clique={"string": X}, domain={"string": A})) == Place("n1", X, A)
    assert place_of(made("n2", clique={"string": X})) is None
    assert place_of(made()) is None


def test_the_template_names_the_domain_and_goes_with_it() -> None:
    made = template_of(domain())
    (owner,) = made["metadata"]["ownerReferences"]
    assert (made["metadata"]["name"], owner["uid"], owner["controller"]) == ("channel", A, True)
    (config,) = made["spec"]["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["domainID"] == A
    assert "All" in why_not_served(domain(mode="All"))


STEPS = st.lists(
    st.tuples(st.sampled_from([A, B, "uid-c"]), st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(0, 4)),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_no_two_domains_have_running_pods_in_a_clique_in_whatever_order_things_happen(
    steps: list[tuple[str, str, int]],
) -> None:
    """Claims come, nodes take up what their domain's status says, pods end, domains are deleted, slices vanish."""
    where = {"n1": X, "n2": X, "n3": Y, "n4": Y}
    domains = {uid: domain(uid) for uid in (A, B, "uid-c")}
    holds: dict[str, str] = {}  # node -> domain of which pods run there
    hidden: set[str] = set()
    wishes: list[Wish] = []
    ledger: dict[str, Hold] = {}
    for uid, node, what in steps:
        if what == 0:
            wishes.append(Wish("team", uid, node))
        elif what == 1:  # prepared: the node believes the status alone
            is_in = any(each.domain == uid and node in each.nodes for each in ledger.values())
            if is_in and uid in domains and node not in holds:
                holds[node] = uid
        elif what == 2:
            holds.pop(node, None)
        elif what == 3:
            domains.pop(uid, None)
        else:
            hidden ^= {node}
        here = {name: Place(name, clique, holds.get(name, "")) for name, clique in where.items() if name not in hidden}
        for clique, left in left_by(ledger, domains).items():
            if not why_not_free(left, here, ()):
                ledger = {name: each for name, each in ledger.items() if name != clique}
        ledger = dict(admit(ledger, domains, wishes, here).ledger)
        for clique in (X, Y):
            assert len({holds[name] for name in holds if where[name] == clique}) <= 1
