"""Merging against the real ldconfig: whatever the names, folders and machines, the same entries in the same order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_hook.loader.cache import CacheEntry, LoaderCache, merge
from tests.runtime_hook.elfmaker import I386, X86_64
from tests.runtime_hook.loader.oracle import FLAGS, HWCAPS, Placed, listed, print_cache, run_ldconfig

OURS = "/usr/lib64"
IMAGE_FOLDERS = ("/opt/lib", "/usr/local/lib", "/opt/lib/glibc-hwcaps/x86-64-v2", "/opt/lib/glibc-hwcaps/x86-64-v3")
FLAG = FLAGS[X86_64]

# Numbers without leading zeros: "lib1" and "lib01" are one name to the loader, and their order is the folder's.
_word = st.one_of(st.text("abAB_+-.", max_size=3), st.integers(0, 120).map(str))
_stem = st.lists(_word, min_size=1, max_size=3).map("-".join)
_name = st.builds(lambda stem, version: f"lib{stem}.so.{version}", _stem, st.integers(0, 1200))
_machine = st.sampled_from([X86_64, X86_64, X86_64, I386])
_image = st.lists(st.builds(Placed, st.sampled_from(IMAGE_FOLDERS), _name, _machine), max_size=30)
_ours = st.lists(st.builds(Placed, st.just(OURS), _name, _machine), max_size=12)


def distinct(placed: list[Placed]) -> list[Placed]:
    """Return libraries whose files do not replace one another."""
    return list({(library.folder, library.name): library for library in placed}.values())


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(image=_image, ours=_ours, shared=st.booleans(), cache_format=st.sampled_from(["new", "compat"]))
def test_a_merged_cache_is_what_ldconfig_would_write(
    image: list[Placed],
    ours: list[Placed],
    shared: bool,  # noqa: FBT001 - drawn by hypothesis
    cache_format: str,
) -> None:
    if shared:
        ours = ours + [Placed(OURS, library.name, library.machine) for library in image[:5]]
    image, ours = distinct(image), distinct(ours)
    with tempfile.TemporaryDirectory() as folder:
        before = run_ldconfig(Path(folder) / "image", image, cache_format)
        expected = run_ldconfig(Path(folder) / "both", ours + image)
    merged = merge(LoaderCache(before), [library.entry() for library in ours])
    assert listed(merged) == listed(expected)
    assert LoaderCache(merged).sections.keys() == LoaderCache(expected).sections.keys()


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(image=_image, ours=_ours)
def test_every_entry_of_the_old_format_is_still_listed(image: list[Placed], ours: list[Placed]) -> None:
    image = distinct([library for library in image if HWCAPS not in library.folder])
    ours = distinct(ours)
    with tempfile.TemporaryDirectory() as folder:
        before = run_ldconfig(Path(folder) / "image", image, "old")
        expected = run_ldconfig(Path(folder) / "both", ours + image)
        path = Path(folder) / "cache"
        path.write_bytes(merge(LoaderCache(before), [library.entry() for library in ours]))
        printed = print_cache(path)
    assert printed == [(entry.name, entry.path) for entry, _ in listed(expected)]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(ours=_ours)
def test_a_fresh_cache_is_what_ldconfig_would_write_and_print(ours: list[Placed]) -> None:
    ours = distinct(ours)
    with tempfile.TemporaryDirectory() as folder:
        expected = run_ldconfig(Path(folder) / "both", ours)
        path = Path(folder) / "cache"
        path.write_bytes(merge(None, [library.entry() for library in ours]))
        printed = print_cache(path)
    assert listed(path_content := merge(None, [library.entry() for library in ours])) == listed(expected)
    assert printed == [(entry.name, entry.path) for entry, _ in listed(path_content)]


def entries_in(folder: str, *names: str) -> list[CacheEntry]:
    return [CacheEntry(name, f"{folder}/{name}", FLAG) for name in names]


def order_of(data: bytes, name: str = "libcuda.so.1") -> list[str]:
    return [entry.path.rpartition("/")[0] for entry in LoaderCache(data).entries() if entry.name == name]


COMPAT, DRIVER, STUBS = "/usr/local/cuda/compat", "/usr/lib64", "/usr/local/cuda/stubs"
NAMES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")


@pytest.mark.parametrize(
    ("rounds", "order"),
    [
        pytest.param([[DRIVER]], [DRIVER, STUBS], id="the driver comes before a stub"),
        pytest.param([[COMPAT, DRIVER]], [COMPAT, DRIVER, STUBS], id="the order given is kept"),
        pytest.param([[DRIVER], [COMPAT, DRIVER]], [COMPAT, DRIVER, STUBS], id="a later order wins over an earlier"),
        pytest.param([[COMPAT, DRIVER], [DRIVER]], [DRIVER, COMPAT, STUBS], id="what is no longer wanted falls back"),
        pytest.param([[STUBS, DRIVER]], [STUBS, DRIVER], id="the image's own entry is moved, not repeated"),
        pytest.param([[DRIVER, DRIVER]], [DRIVER, STUBS], id="an entry given twice is written once"),
    ],
)
def test_of_one_name_the_first_given_is_found_first(rounds: list[list[str]], order: list[str]) -> None:
    data = merge(None, entries_in(STUBS, *NAMES))
    for folders in rounds:
        data = merge(LoaderCache(data), [entry for folder in folders for entry in entries_in(folder, *NAMES)])
    assert order_of(data) == order


def test_a_hundred_restarts_in_changing_orders_leave_nothing_that_grows() -> None:
    data = merge(None, entries_in(STUBS, *NAMES))
    sizes = set()
    for number in range(100):
        folders = [COMPAT, DRIVER] if number % 2 else [DRIVER, COMPAT]
        data = merge(LoaderCache(data), [entry for folder in folders for entry in entries_in(folder, *NAMES)])
        sizes.add(len(data))
    assert len(sizes) == 1


def test_merging_twice_changes_no_byte() -> None:
    once = merge(None, entries_in(DRIVER, *NAMES))
    assert merge(LoaderCache(once), entries_in(DRIVER, *NAMES)) == once


def test_an_unsorted_cache_takes_every_entry_once() -> None:
    data = merge(None, entries_in(STUBS, "libb.so", "liba.so"))
    rows = data[48:96]
    shuffled = data[:48] + rows[24:] + rows[:24] + data[96:]
    merged = merge(LoaderCache(shuffled), entries_in(DRIVER, *NAMES))
    assert len(LoaderCache(merged)) == 2 + len(NAMES)


@pytest.mark.slow
def test_ten_thousand_entries_of_one_name_are_merged_in_bounded_steps() -> None:
    reads = 0

    class Counting(LoaderCache):
        def name(self, index: int) -> bytes:
            nonlocal reads
            reads += 1
            return super().name(index)

    many = merge(None, [CacheEntry("libcuda.so.1", f"/{number}/libcuda.so.1", FLAG) for number in range(10000)])
    merged = merge(Counting(many), entries_in(DRIVER, *NAMES))
    assert order_of(merged)[0] == DRIVER
    assert reads < 10000
