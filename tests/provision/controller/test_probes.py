"""What kubelets and Prometheus ask of the controller."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import GrapnelError
from provision.base.serving import Limits
from provision.controller.publication.metrics import Counts, StackCounts, render_controller
from provision.controller.publication.probes import Probes

if TYPE_CHECKING:
    from collections.abc import Iterator


class Subject:
    """A controller of which only this is asked."""

    def __init__(self) -> None:
        self.counts = Counts(is_leader=True, stacks={"a": StackCounts(nodes={"changing": 2})}, rounds=1)
        self.stuck = ""

    def trouble(self) -> str:
        """Say what is wrong."""
        return self.stuck


@pytest.fixture
def subject() -> Subject:
    return Subject()


@pytest.fixture
def url(subject: Subject) -> Iterator[str]:
    with Probes("127.0.0.1:0", subject) as probes:  # type: ignore[arg-type]  # what is asked of it
        yield f"http://127.0.0.1:{probes.port}"


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - http on loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_lives_until_its_loop_stands_still(url: str, subject: Subject) -> None:
    assert get(f"{url}/healthz") == (200, "ok\n")
    subject.stuck = "no turn for 400 s"
    assert get(f"{url}/healthz") == (503, "no turn for 400 s\n")
    assert get(f"{url}/readyz") == (200, "ok\n")


def test_numbers_are_told_by_stack(url: str) -> None:
    status, page = get(f"{url}/metrics")
    assert status == 200
    assert 'grapnel_controller_nodes{stack="a",state="changing"} 2' in page
    assert "grapnel_controller_leader 1" in page


def test_other_paths_name_those_that_there_are(url: str) -> None:
    assert get(f"{url}/") == (404, "/healthz, /readyz, /metrics\n")


@pytest.mark.parametrize("address", ["8080", "127.0.0.1:x", "no.such.host.invalid:80"])
def test_an_address_that_cannot_be_had_is_refused(address: str) -> None:
    with pytest.raises(GrapnelError, match="--probes"):
        Probes(address, Subject())  # type: ignore[arg-type]  # what is asked of it


def test_who_does_not_lead_says_so() -> None:
    assert b"grapnel_controller_leader 0" in render_controller(Counts())


def test_who_says_nothing_keeps_no_kubelet_out(subject: Subject) -> None:
    """Every connection had a thread, without end, and a byte now and then kept it: then no probe was answered."""
    limits = Limits(clients=4, ask_s=600.0, take_s=600.0)
    with Probes("127.0.0.1:0", subject, limits) as probes, contextlib.ExitStack() as stack:  # type: ignore[arg-type]  # what is asked of it
        address = ("127.0.0.1", probes.port)
        silent = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(20)]
        assert get(f"http://127.0.0.1:{probes.port}/healthz") == (200, "ok\n")
        assert silent[0].recv(1) == b"", "the oldest had to go"


def test_a_request_that_drips_is_ended(subject: Subject) -> None:
    limits = Limits(clients=4, ask_s=0.3, take_s=30.0)
    with Probes("127.0.0.1:0", subject, limits) as probes:  # type: ignore[arg-type]  # what is asked of it
        with socket.create_connection(("127.0.0.1", probes.port), 0.05) as client:
            for _ in range(600):
                client.sendall(b"G")
                with contextlib.suppress(TimeoutError):
                    assert client.recv(1) == b""
                    break
            else:
                pytest.fail("it is read for ever")
        assert get(f"http://127.0.0.1:{probes.port}/healthz") == (200, "ok\n")
