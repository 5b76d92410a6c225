from __future__ import annotations

import pytest

from plugin.driver.topology.facts import GpuLinks, NvLink, Remote
from plugin.driver.topology.machine import common_links

A, B, C = "0000:10:00.0", "0000:11:00.0", "0000:12:00.0"
CLIQUE = "6ba7b812-9dad-11d1-80b4-00c04fd430c8.1"


def direct(address: str, count: int) -> tuple[NvLink, ...]:
    return (NvLink(Remote.GPU, address),) * count


def switched(count: int) -> tuple[NvLink, ...]:
    return (NvLink(Remote.SWITCH, "0000:c0:00.0"),) * count


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        pytest.param(direct(B, 4), direct(A, 4), 4, id="both ends say the same"),
        pytest.param(direct(B, 4), direct(A, 3), 3, id="one end of a link is down"),
        pytest.param(direct(B, 4), None, 4, id="one end cannot be read"),
        pytest.param(None, None, 0, id="neither end can be read"),
        pytest.param(direct(B, 4), (), 0, id="the other end has no links at all"),
        pytest.param(direct(B, 2) + direct(C, 2), direct(A, 2), 2, id="links to a third one do not count"),
        pytest.param(switched(12), switched(12), 12, id="through switches"),
        pytest.param(switched(18), switched(17), 17, id="through switches with a link down"),
        pytest.param(switched(12), (), 0, id="switches that only one of them reaches"),
        pytest.param((NvLink(Remote.OTHER, ""),) * 3, (NvLink(Remote.OTHER, ""),) * 3, 0, id="links to a CPU"),
    ],
)
def test_links_of_a_pair(of_a: tuple[NvLink, ...] | None, of_b: tuple[NvLink, ...] | None, expected: int) -> None:
    assert common_links(GpuLinks("GPU-a", of_a), A, GpuLinks("GPU-b", of_b), B) == expected
    assert common_links(GpuLinks("GPU-b", of_b), B, GpuLinks("GPU-a", of_a), A) == expected


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        pytest.param(CLIQUE, CLIQUE, 18, id="the same clique"),
        pytest.param(CLIQUE, CLIQUE[:-1] + "2", 0, id="another clique of the same cluster"),
        pytest.param(CLIQUE, "", 0, id="one of them is not in the fabric yet"),
        pytest.param("", "", 18, id="the fabric is not ready"),
        pytest.param(None, None, 18, id="switches without a fabric"),
        pytest.param(CLIQUE, None, 18, id="one of them does not say"),
    ],
)
def test_a_fabric_connects_its_cliques_alone(of_a: str | None, of_b: str | None, expected: int) -> None:
    one, other = GpuLinks("GPU-a", switched(18), of_a), GpuLinks("GPU-b", switched(18), of_b)
    assert common_links(one, A, other, B) == expected
