"""Every published hole of NVIDIA's container toolkit: it cannot be reached here, and the check would see it.

Each attack is played twice: against our hook, and against a naive one that does what made the hole (``naive.py``).
Source of the list: NVIDIA's product security bulletins 5582 (2024) to 5850 (2026).
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.attack.naive import COMPAT
from tests.runtime_hook.attack.rounds import Scene, breaches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.runtime_hook.attack.rounds import Ground, Round

pytestmark = pytest.mark.functional

ROUNDS = 120
NAIVE_ROUNDS = 20_000  # until the first breach; on a busy machine the other process seldom gets its turn
NEW_LIBRARY = f"{COMPAT}/libcuda.so.999.1"
EVIL_LDCONFIG = {"bin/sh": "busybox", "bin/nc": "busybox"}


def attack(ground: Ground, scene: Scene, sin: str) -> tuple[list[str], list[Round]]:
    """Play a scene against a naive hook, which must be caught, and against ours; return what ours was caught at."""
    changes = {**vars(scene), "rounds": NAIVE_ROUNDS if scene.swaps else 1, "sin": sin}
    caught = breaches(ground.play(Scene(**changes)))
    assert caught, f"nothing is seen of a hook that does this: {sin}"
    ours = ground.play(scene)
    assert len(ours) == scene.rounds
    return breaches(ours), ours


def test_cve_2024_0132_a_library_of_the_image_that_leads_to_the_host_is_not_mounted(ground: Ground) -> None:
    scene = Scene("compat leads out", target=NEW_LIBRARY, files={NEW_LIBRARY: "link:{victim}/secret"})
    found, _ = attack(ground, scene, "bind libraries of the image")
    assert found == []


def test_cve_2024_0133_no_file_is_made_on_the_host_through_a_link_of_the_image(ground: Ground) -> None:
    scene = Scene("the library folder leads out", "the library folder", "an absolute link")
    found, _ = attack(ground, scene, "make targets by path")
    assert found == []


def test_cve_2024_0134_no_link_is_made_on_the_host_through_a_linked_folder(ground: Ground) -> None:
    scene = Scene("the library folder leads out", "the library folder", "a climbing link")
    found, _ = attack(ground, scene, "make links by path")
    assert found == []


def test_cve_2024_0135_no_program_of_the_host_can_be_caught_running_in_the_container(ground: Ground) -> None:
    """The hostile process waits for a program of the host in the container and writes to it through /proc."""
    watched = Scene("a thief", rounds=3)
    caught = breaches(ground.play(Scene("a thief", sin="run the host's ldconfig")))
    assert any("sbin/ldconfig" in breach for breach in caught), caught
    assert breaches(ground.play(watched)) == []


def test_cve_2024_0136_a_ldconfig_of_the_image_is_not_executed(ground: Ground) -> None:
    files = {**EVIL_LDCONFIG, "sbin/ldconfig": "#!/bin/sh\necho ldconfig > /executed\n"}
    found, ours = attack(ground, Scene("an evil ldconfig", "tmp/x", files=files), "run the image's ldconfig")
    assert found == []
    assert ours[0].outcome == "done", ours[0].text


def test_cve_2024_0137_nothing_of_the_image_gets_into_the_hosts_network(ground: Ground) -> None:
    with listener() as (port, connections):
        evil = f"#!/bin/sh\nPATH=/bin\necho hello | nc 127.0.0.1 {port} && echo the network > /executed\n"
        files = {**EVIL_LDCONFIG, "sbin/ldconfig": evil, "sbin/ldconfig.real": evil}
        found, ours = attack(ground, Scene("a calling ldconfig", "tmp/x", files=files), "run the image's ldconfig")
        assert len(connections) == 1, "only the naive hook's"
    assert found == []
    assert ours[0].outcome == "done", ours[0].text


@contextmanager
def listener() -> Iterator[tuple[int, list[object]]]:
    """Listen on the host's loopback; collect who called."""
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:
                    return
                connections.append(peer)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], connections
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_cve_2025_23359_a_library_that_becomes_a_link_after_a_check_is_not_mounted(ground: Ground) -> None:
    files = {f"{COMPAT}/aside": "link:{victim}/secret"}
    scene = Scene("compat swaps", target=NEW_LIBRARY, swaps=True, rounds=ROUNDS, files=files)
    found, _ = attack(ground, scene, "check, then bind")
    assert found == []


def test_cve_2025_23267_the_cache_is_not_written_through_a_link_of_the_image(ground: Ground) -> None:
    scene = Scene("the cache leads out", "the cache", "an absolute link")
    found, _ = attack(ground, scene, "write the cache by path")
    assert found == []


def test_cve_2026_24260_a_folder_that_becomes_a_link_after_a_check_is_not_written_to(ground: Ground) -> None:
    scene = Scene("the library folder swaps", "the library folder", "an absolute link", swaps=True, rounds=ROUNDS)
    found, _ = attack(ground, scene, "check, then link")
    assert found == []
