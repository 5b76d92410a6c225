"""Those who watch are told which nodes a wave has, and which a domain has."""

from __future__ import annotations

from provision.rollout.decision.order.membership import domains_of, waves_of
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.interface.standing import Members
from tests.provision.rollout.fakes import state

POLICY = Policy(waves=(WavePolicy(title="canary"), WavePolicy(title="nobody's"), WavePolicy(title="rest")))


def test_waves_without_nodes_and_nodes_without_waves_are_left_out() -> None:
    nodes = [state("n1", wave=2), state("n2", wave=0), state("n3"), state("n4", wave=2)]

    assert waves_of(nodes, POLICY) == (Members("canary", ("n2",)), Members("rest", ("n1", "n4")))


def test_nodes_without_a_domain_are_in_none() -> None:
    nodes = [state("n1", domain="rack-2"), state("n2"), state("n3", domain="rack-1"), state("n4", domain="rack-2")]

    assert domains_of(nodes) == (Members("rack-2", ("n1", "n4")), Members("rack-1", ("n3",)))
