"""What ansible-inventory prints, read as hosts and groups in Ansible's order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.declaration.fleet.endpoint import Endpoint
from provision.declaration.fleet.errors import InventoryError
from provision.declaration.fleet.inventory import Host, parse_inventory


def parse(**groups: dict[str, Any]) -> dict[str, Host]:
    return {host.name: host for host in parse_inventory(json.dumps(groups)).hosts}


def test_a_host_is_in_its_groups_and_in_all_above_them() -> None:
    hosts = parse(
        all={"children": ["ungrouped", "gpu", "rack"]},
        gpu={"children": ["a100"]},
        a100={"hosts": ["n1"]},
        rack={"hosts": ["n1", "n2"]},
        ungrouped={"hosts": ["n3"]},
    )
    assert hosts["n1"].groups == ("all", "gpu", "rack", "a100")
    assert hosts["n2"].groups == ("all", "rack")
    assert hosts["n3"].groups == ("all", "ungrouped")


def test_the_longest_way_from_all_is_a_groups_depth() -> None:
    """Else `short` would sort before `deep`, of which it is a child."""
    hosts = parse(
        all={"children": ["top", "short"]},
        top={"children": ["deep"]},
        deep={"children": ["short"]},
        short={"hosts": ["n1"]},
    )
    assert hosts["n1"].groups == ("all", "top", "deep", "short")


@pytest.mark.parametrize(
    ("priority", "order"),
    [
        pytest.param(5, ("all", "b", "a"), id="a higher priority wins over the name"),
        pytest.param("5", ("all", "b", "a"), id="a priority may be text"),
        pytest.param(-1, ("all", "a", "b"), id="a lower one loses"),
        pytest.param("high", ("all", "a", "b"), id="one that is no number counts as the default"),
    ],
)
def test_priority_orders_groups_of_one_depth(priority: object, order: tuple[str, ...]) -> None:
    hosts = parse(
        all={"children": ["a", "b"]},
        a={"hosts": ["n1"], "vars": {"ansible_group_priority": priority}},
        b={"hosts": ["n1"]},
    )
    assert hosts["n1"].groups == order


def test_hosts_are_ordered_as_people_count() -> None:
    assert list(parse(all={"hosts": ["n10", "n2", "m1", "n2-b"]})) == ["m1", "n2", "n2-b", "n10"]


def test_a_host_whose_name_has_digits_of_no_number_is_ordered_as_text() -> None:
    assert list(parse(all={"hosts": ["n10", "²", "n1²", "n2"]})) == ["n1²", "n2", "n10", "²"]


def test_variables_of_hosts_and_groups() -> None:
    text = json.dumps(
        {
            "_meta": {"hostvars": {"n1": {"grapnel_stack": {"driver": {}}, "other": 1}}, "profile": "x"},
            "all": {"hosts": ["n1"], "vars": {"grapnel_stack": {"plugin": {}}}},
        }
    )
    inventory = parse_inventory(text)
    assert inventory.hosts == (Host("n1", ("all",), Endpoint("n1"), {"driver": {}}),)
    assert inventory.group_stacks == {"all": {"plugin": {}}}


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"all": []}', '{"all": {"hosts": {"n1": {}}}}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InventoryError, match="did not print an inventory"):
        parse_inventory(text)


@pytest.mark.parametrize(
    ("variables", "expected", "network_host"),
    [
        pytest.param({}, "n1:22", "n1", id="its name"),
        pytest.param({"ansible_host": "10.0.0.1"}, "10.0.0.1:22", "10.0.0.1", id="an address"),
        pytest.param({"ansible_ssh_host": "GPU-1", "ansible_port": "2222"}, "gpu-1:2222", "gpu-1", id="a port as text"),
        pytest.param({"ansible_host": "h", "ansible_port": 2222}, "h:2222", "h", id="a port as a number"),
        pytest.param(
            {"ansible_host": "{{ inventory_hostname }}.example.org"},
            "n1.example.org:22",
            "n1.example.org",
            id="own name",
        ),
        pytest.param({"ansible_host": "{{ bmc[rack] }}"}, "n1:22", "", id="a template that is not rendered here"),
        pytest.param({"ansible_host": {"__ansible_vault": "x"}}, "n1:22", "n1", id="a secret"),
        pytest.param({"ansible_connection": "local"}, "local", "", id="this machine"),
        pytest.param({"ansible_connection": "paramiko"}, "n1:22", "n1", id="another client of ssh"),
        pytest.param(
            {"ansible_connection": "community.docker.docker"}, "community.docker.docker:n1", "", id="a plugin"
        ),
    ],
)
def test_where_ansible_connects_to(variables: dict[str, object], expected: str, network_host: str) -> None:
    endpoint = parse(_meta={"hostvars": {"n1": variables}}, all={"hosts": ["n1"]})["n1"].endpoint

    assert (str(endpoint), endpoint.network_host) == (expected, network_host)


def test_a_host_says_where_to_connect_to_before_its_groups_do() -> None:
    hosts = parse(
        _meta={"hostvars": {"n1": {"ansible_host": "10.0.0.1"}}},
        all={"children": ["gpu"], "vars": {"ansible_port": 1}},
        gpu={"hosts": ["n1", "n2"], "vars": {"ansible_host": "{{ inventory_hostname }}.rack", "ansible_port": 2222}},
    )
    assert [str(host.endpoint) for host in hosts.values()] == ["10.0.0.1:2222", "n2.rack:2222"]
