"""The files in deploy/gpushare: the role is what is asked for, and the scheduler asks where the extender serves."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from plugin.base.errors import ConfigError
from plugin.cli.grammar.parser import build_parser
from plugin.gpushare import requests
from plugin.gpushare.books.model import RESOURCE
from plugin.gpushare.server import PREFIX, loopback
from tests.plugin.gpushare.documents import make_pod

FOLDER = Path(__file__).parents[3] / "deploy/gpushare"


def test_the_role_is_what_is_asked_for() -> None:
    pod = make_pod("p", 1)
    asked = [
        requests.list_page(requests.NODES),
        requests.watch(requests.NODES, "1"),
        requests.read_node("n"),
        requests.list_page(requests.PODS),
        requests.watch(requests.PODS, "1"),
        requests.read_pod("d", "p"),
        requests.bind(pod, "n", {}),
        requests.annotate(pod, {}),
    ]
    role, policy, binding = yaml.safe_load_all((FOLDER / "rbac.yaml").read_text())
    allowed = {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    assert {(each.verb, each.resource) for each in asked} == allowed
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_the_scheduler_asks_where_the_extender_serves() -> None:
    config = yaml.safe_load((FOLDER / "scheduler.yaml").read_text())
    [extender] = config["extenders"]
    arguments = build_parser("gpushare-extender").parse_args(["gpushare-extender"])
    assert extender["urlPrefix"] == f"http://{arguments.listen}{PREFIX}"
    assert extender["managedResources"] == [{"name": RESOURCE, "ignoredByScheduler": False}]
    assert arguments.resource == RESOURCE


def test_the_daemon_set_starts_it_with_the_role() -> None:
    account, binding, workload = yaml.safe_load_all((FOLDER / "deployment.yaml").read_text())
    spec = workload["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == account["metadata"]["name"] == binding["subjects"][0]["name"]
    [container] = spec["containers"]
    assert build_parser("gpushare-extender").parse_args(container["command"][1:]).verb == "gpushare-extender"
    assert "memory" in container["resources"]["limits"]
    assert spec["hostNetwork"]
    assert not spec.get("volumes"), "nothing of the host"
    account = f"system:serviceaccount:{account['metadata']['namespace']}:{account['metadata']['name']}"
    _, policy, _ = yaml.safe_load_all((FOLDER / "rbac.yaml").read_text())
    [condition] = policy["spec"]["matchConditions"]
    assert f'"{account}"' in condition["expression"]


@pytest.mark.parametrize("address", ["127.0.0.1:32766", "[::1]:32766"])
def test_loopback_addresses_are_served(address: str) -> None:
    assert loopback(address)[1] == 32766


@pytest.mark.parametrize(
    "address", ["0.0.0.0:32766", "192.168.0.71:1", "[::]:1", "localhost:1", "127.0.0.1", "127.0.0.1:0"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        loopback(address)
