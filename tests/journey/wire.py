"""Listens to what a lab node sends through its site's bridge, apart from the answers of its ssh daemon."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_ALL_PROTOCOLS = 0x0003  # ETH_P_ALL, packet(7)
_IPV4, _TCP, _UDP, _IGMP = 0x0800, 6, 17, 2
_ETHERNET = struct.Struct("!12xH")
_ADDRESSES = struct.Struct("!9xB2x4s4s")
_PORTS = struct.Struct("!HH")
_SSH = 22
_POLL_S = 0.2
_SNAP_BYTES = 128


@dataclass
class Wire:
    """Collects where an address sends to while it is open: ``tcp ADDRESS PORT``. Multicast stays on the bridge."""

    bridge: str
    address: str
    _found: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        self._socket.bind((self.bridge, 0))
        self._socket.settimeout(_POLL_S)
        self._thread = threading.Thread(target=self._listen, name="wire")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def sent(self) -> list[str]:
        """Return what was sent so far, once each."""
        return list(dict.fromkeys(self._found))

    def _listen(self) -> None:
        while not self._is_over.is_set():
            try:
                frame = self._socket.recv(_SNAP_BYTES)
            except TimeoutError:
                continue
            if (seen := describe(frame, self.address)) is not None:
                self._found.append(seen)


def describe(frame: bytes, sender: str) -> str | None:
    """Return where a frame goes, None for one of another sender, an answer of ssh, or multicast."""
    if len(frame) < 34 or _ETHERNET.unpack_from(frame)[0] != _IPV4:
        return None
    protocol, source, target = _ADDRESSES.unpack_from(frame, 14)
    to = socket.inet_ntoa(target)
    if socket.inet_ntoa(source) != sender or 224 <= target[0] <= 239:
        return None
    ports_at = 14 + (frame[14] & 0x0F) * 4
    if protocol not in (_TCP, _UDP) or len(frame) < ports_at + _PORTS.size:
        return f"protocol {protocol} {to}"
    own, port = _PORTS.unpack_from(frame, ports_at)
    return None if (protocol, own) == (_TCP, _SSH) else f"{'tcp' if protocol == _TCP else 'udp'} {to} {port}"
