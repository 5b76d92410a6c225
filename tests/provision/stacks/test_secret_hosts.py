"""To which hosts a GpuStack may have the Secrets of the controller's pod sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provision.controller.stacks.decode import decode_stack
from provision.controller.stacks.model import Stack, Unreadable
from provision.controller.stacks.secret_hosts import FILES, NOWHERE, SecretHosts, parse_secret_hosts
from tests.provision.stacks.samples import stored

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTED = parse_secret_hosts(["gates=prometheus.example.com,thanos.example.com:9090", "hooks=[fd00::1]:8443"])
GATE = {"name": "a", "prometheus": "https://prometheus.example.com", "query": "up", "tokenFile": f"{FILES}/gates/token"}
HOOK = {"url": "https://[fd00::1]:8443/x", "secretFile": f"{FILES}/hooks/key"}


def refused(rollout: Mapping[str, Any], hosts: SecretHosts | None = LISTED) -> tuple[str, ...]:
    """Return why a stack with these gates and notifications is refused."""
    found = decode_stack(stored(rollout=rollout), hosts)
    if isinstance(found, Stack):
        return ()
    assert isinstance(found, Unreadable)
    return found.reasons


@pytest.mark.parametrize(
    "rollout",
    [
        pytest.param({"gates": [GATE]}, id="a host that is listed"),
        pytest.param({"gates": [{**GATE, "prometheus": "https://prometheus.example.com:9443/a"}]}, id="on any port"),
        pytest.param({"gates": [{**GATE, "prometheus": "https://thanos.example.com:9090"}]}, id="on the port listed"),
        pytest.param({"gates": [{**GATE, "prometheus": "https://b.example.com", "tokenFile": None}]}, id="no Secret"),
        pytest.param(
            {"gates": [{**GATE, "prometheus": "https://b.example.com", "tokenFile": None, "caFile": f"{FILES}/ca/a"}]},
            id="certificates, which are not sent",
        ),
        pytest.param({"notify": [HOOK]}, id="a receiver by its address"),
        pytest.param(
            {"notify": [{"urlFile": f"{FILES}/chat/url", "secretFile": f"{FILES}/other/key"}]},
            id="a URL that is a Secret itself",
        ),
    ],
)
def test_a_secret_is_used_with_the_hosts_that_are_listed(rollout: dict[str, Any]) -> None:
    rollout = {key: [_declared(each) for each in entries] for key, entries in rollout.items()}
    assert refused(rollout) == ()


def _declared(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None}


@pytest.mark.parametrize(
    ("rollout", "key"),
    [
        pytest.param({"gates": [{**GATE, "prometheus": "https://a.test"}]}, "gates[0].tokenFile", id="another host"),
        pytest.param({"gates": [{**GATE, "prometheus": "https://a.test:99999"}]}, "gates[0].tokenFile", id="no port"),
        pytest.param(
            {"gates": [{**GATE, "prometheus": "https://prometheus.example.com.a.test"}]},
            "gates[0].tokenFile",
            id="a host that begins like it",
        ),
        pytest.param(
            {"gates": [{**GATE, "prometheus": "https://thanos.example.com"}]}, "gates[0].tokenFile", id="another port"
        ),
        pytest.param({"gates": [{**GATE, "prometheus": "http://127.0.0.1:9090"}]}, "gates[0].tokenFile", id="loopback"),
        pytest.param(
            {"gates": [{**GATE, "tokenFile": f"{FILES}/hooks/key"}]},
            "gates[0].tokenFile",
            id="the host of another Secret",
        ),
        pytest.param(
            {"gates": [{**GATE, "tokenFile": f"{FILES}/./hooks/gates/token"}]},
            "gates[0].tokenFile",
            id="another way to write the file of another Secret",
        ),
        pytest.param({"notify": [{**HOOK, "url": "https://a.test/x"}]}, "notify[0].secretFile", id="another receiver"),
    ],
)
def test_a_secret_is_not_used_with_another_host(rollout: dict[str, Any], key: str) -> None:
    """Whoever could write a GpuStack had every mounted token sent to a server of theirs."""
    assert any(each.startswith(f"spec.rollout.{key}: ") for each in refused(rollout)), refused(rollout)


def test_the_refusal_names_the_value_of_the_chart_and_what_it_lists() -> None:
    (none,) = refused({"gates": [GATE]}, NOWHERE)
    assert "controller.secretHosts.gates of the chart" in none
    assert none.endswith("lists no host")
    (other,) = refused({"gates": [{**GATE, "prometheus": "https://a.test"}]})
    assert "Secret gates may not be used with a.test" in other
    assert other.endswith("lists prometheus.example.com, thanos.example.com:9090")


def test_who_only_looks_does_not_know_the_hosts() -> None:
    assert refused({"gates": [GATE]}, None) == ()


def test_a_secret_that_is_named_twice_has_the_hosts_of_both() -> None:
    assert parse_secret_hosts(["a=x.test", "a=y.test:1"]) == SecretHosts({"a": frozenset({"x.test", "y.test:1"})})


@pytest.mark.parametrize(
    "text",
    ["gates", "=x.test", "../gates=x.test", "gates=", "gates=https://x.test", "gates=x.test/a", "gates=*", "gates=x:0"],
)
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST|name of a Secret"):
        parse_secret_hosts([text])
