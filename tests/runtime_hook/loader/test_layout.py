"""Where an image keeps its libraries, told by a few names in its root."""

from __future__ import annotations

import pytest

from runtime_hook.loader.layout import Layout, choose_layout
from runtime_hook.loader.platforms import PLATFORMS

X86 = PLATFORMS["x86_64"]
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
DEBIAN = Layout(X86, MULTIARCH, "/usr/lib/i386-linux-gnu")
OTHERS = Layout(X86, "/usr/lib64", "/usr/lib")
MUSL = Layout(X86, "/usr/lib", is_musl=True)


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        pytest.param({"/etc/debian_version"}, DEBIAN, id="Debian"),
        pytest.param({f"{MULTIARCH}/libc.so.6"}, DEBIAN, id="Debian's libraries without its release file"),
        pytest.param({"/etc/debian_version", "/lib/ld-musl-x86_64.so.1"}, DEBIAN, id="Debian with musl besides"),
        pytest.param({"/usr/lib64/libc.so.6"}, OTHERS, id="Red Hat"),
        pytest.param({"/usr/lib64/libc.so.6", "/lib/ld-musl-x86_64.so.1"}, OTHERS, id="Red Hat with musl besides"),
        pytest.param({"/lib64/libc.so.6", "/lib/ld-musl-x86_64.so.1"}, OTHERS, id="an unmerged one with musl"),
        pytest.param({"/lib/ld-musl-x86_64.so.1"}, MUSL, id="Alpine"),
        pytest.param({"/lib/ld-musl-aarch64.so.1"}, OTHERS, id="the loader of another architecture"),
        pytest.param({"/usr/lib32"}, Layout(X86, "/usr/lib64", "/usr/lib32"), id="Arch"),
        pytest.param(set(), OTHERS, id="an image with nothing"),
    ],
)
def test_an_image_is_recognised(names: set[str], layout: Layout) -> None:
    assert choose_layout(X86, names.__contains__) == layout


def test_the_other_architecture_has_its_own_folder() -> None:
    names = {"/etc/debian_version"}
    assert choose_layout(PLATFORMS["aarch64"], names.__contains__).library_folder == "/usr/lib/aarch64-linux-gnu"
