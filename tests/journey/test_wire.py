"""What is seen on a lab bridge: everything that a node sends of its own accord, and nothing else."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.journey.wire import describe

NODE, OTHER, SOURCE = "10.177.3.11", "10.177.3.12", "10.177.3.1"
TCP, UDP, ICMP = 6, 17, 1


def frame(source: str, target: str, protocol: int, *ports: int, options: bytes = b"", kind: int = 0x0800) -> bytes:
    """A frame of Ethernet with IPv4, whose header may have options."""
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    words = 5 + len(options) // 4
    header = struct.pack("!B8xB2x", 0x40 | words, protocol) + addresses + options
    return bytes(12) + struct.pack("!H", kind) + header + struct.pack(f"!{len(ports)}H", *ports) + bytes(20)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        pytest.param(frame(NODE, SOURCE, TCP, 40000, 80), f"tcp {SOURCE} 80", id="a download"),
        pytest.param(frame(NODE, "1.1.1.1", UDP, 40000, 53), "udp 1.1.1.1 53", id="a name that is looked up"),
        pytest.param(frame(NODE, SOURCE, TCP, 40000, 22), f"tcp {SOURCE} 22", id="ssh from the node"),
        pytest.param(frame(NODE, SOURCE, TCP, 22, 40000), None, id="an answer of its ssh daemon"),
        pytest.param(frame(NODE, SOURCE, UDP, 22, 53), f"udp {SOURCE} 53", id="another protocol from that port"),
        pytest.param(frame(NODE, "8.8.8.8", ICMP), "protocol 1 8.8.8.8", id="a ping"),
        pytest.param(frame(NODE, SOURCE, TCP, 40000, 80, options=bytes(4)), f"tcp {SOURCE} 80", id="with options"),
        pytest.param(frame(OTHER, SOURCE, TCP, 40000, 80), None, id="another node's"),
        pytest.param(frame(NODE, "224.0.0.251", UDP, 5353, 5353), None, id="multicast"),
        pytest.param(frame(NODE, SOURCE, TCP, 1, 2, kind=0x0806), None, id="ARP"),
        pytest.param(b"\0" * 10, None, id="a part of a frame"),
    ],
)
def test_what_a_node_sends_is_told(given: bytes, seen: str | None) -> None:
    assert describe(given, NODE) == seen
