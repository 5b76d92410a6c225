"""What verbs that only look are told of GpuStacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse
from provision.controller.stacks.reader import see_stacks
from tests.provision.stacks.samples import stored

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import Request, Stream


class Server:
    """An API server with one GpuStack, whose status has these conditions."""

    name = "test"

    def __init__(self, *conditions: dict[str, object]) -> None:
        self.item = {**stored(), "status": {"state": "AsDeclared", "conditions": list(conditions)}}

    def send(self, request: Request) -> ApiResponse:
        del request
        return ApiResponse(code=200, body=json.dumps({"metadata": {}, "items": [self.item]}).encode(), headers={})

    def stream(self, request: Request) -> Stream:
        raise AssertionError(request.path)


def apart(status: str, message: str) -> dict[str, object]:
    since = "2026-05-04T12:00:00Z"
    found = {"type": "ControllerApart", "status": status, "reason": "x", "message": message}
    return {**found, "lastTransitionTime": since}


@pytest.mark.parametrize(
    ("conditions", "exposure"),
    [
        pytest.param((), "", id="no word of it"),
        pytest.param((apart("True", ""),), "", id="elsewhere"),
        pytest.param((apart("False", "it runs on n1"),), "it runs on n1", id="on one of its nodes"),
        pytest.param((apart("Unknown", "no controller is installed"),), "", id="uninstalled"),
    ],
)
def test_where_the_controller_runs_is_read_from_the_condition(
    conditions: tuple[dict[str, object], ...], exposure: str
) -> None:
    (found,), complaint = see_stacks(Api(Server(*conditions)), {})
    assert (found.exposure, complaint) == (exposure, "")


@pytest.mark.parametrize(
    ("runtime", "handlers"),
    [
        pytest.param({"handler": "gpus", "handlerAliases": ["nvidia"]}, ("gpus", "nvidia"), id="all of its names"),
        pytest.param({"enabled": False}, (), id="engines are left alone"),
    ],
)
def test_the_runtime_classes_of_its_pods_are_those_that_it_declares(
    runtime: dict[str, object], handlers: tuple[str, ...]
) -> None:
    server = Server()
    server.item["spec"] = {**server.item["spec"], "runtime": runtime}
    (found,), _ = see_stacks(Api(server), {})
    assert found.handlers == handlers
