"""Webhooks of a cluster that refuse what the controller writes, or do not answer, on a real API server."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from provision.controller import marker
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
NOBODY = "https://127.0.0.1:9/"  # where no webhook listens


@pytest.fixture
def world(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(marker, "AGAIN_S", 1.0)
    made = World(stage, f"refused-{next(_NUMBERS)}", haste=10.0)
    yield made
    stage.kubectl("delete", "validatingwebhookconfiguration", made.pool, "--ignore-not-found")
    remove_stacks(stage)
    stage.kubectl("delete", "nodes", "-l", f"pool={made.pool}")


def put_webhook(world: World) -> None:
    """Have a webhook that is gone asked about each change of a Node of the pool."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    webhook = {
        "name": "guard.example.com",
        "clientConfig": {"url": NOBODY},
        "rules": [rule],
        "objectSelector": {"matchLabels": {"pool": world.pool}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    world.stage.kubectl("create", "-f", "-", data={**kind, "metadata": {"name": world.pool}, "webhooks": [webhook]})


def take_webhook_away(world: World) -> None:
    world.stage.kubectl("delete", "validatingwebhookconfiguration", world.pool)


def is_told(world: World) -> bool:
    """Tell whether the status of the stack names the webhook, for a node."""
    return any("guard.example.com" in each["message"] for each in world.status().get("troubles", []))


def test_a_node_that_a_webhook_keeps_from_being_marked_is_told_and_marked_later(world: World) -> None:
    name = world.join()
    put_webhook(world)
    world.declare(driver={"version": NEW})
    with world.controller():
        world.wait(lambda: is_told(world), "its status names the webhook")
        assert driver(NEW) in world.machines.nodes[name].packages
        changed = world.asked("apply")
        take_webhook_away(world)
        world.stage.kubectl("label", "node", name, "example.com/touched=yes")  # or its next turn is in half a minute
        world.wait_for("AsDeclared")
        world.wait(lambda: world.is_marked(name), "its Node says so")
    assert world.asked("apply") == changed == [name], "what is done is not done again"


def test_a_rollout_that_a_webhook_keeps_from_beginning_says_so_and_begins_later(world: World) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
        world.wait(lambda: world.is_marked(name), "its Node says so")
        put_webhook(world)
        world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
        world.wait(lambda: is_told(world), "its status names the webhook")
        assert not world.is_out(name)
        assert world.machines.nodes[name].packages == [driver(OLD)]
        take_webhook_away(world)
        world.declare(
            driver={"version": NEW}, rollout={"soakMinutes": 0, "maxParallel": 2}
        )  # else it is tried after a minute
        world.wait_for("AsDeclared")
    assert driver(NEW) in world.machines.nodes[name].packages
