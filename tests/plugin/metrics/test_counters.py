from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.inventory import Device, Inventory, without_driver
from plugin.publication.metrics.counters import RPC_BOUNDS_S, Counters, Histogram, transitions
from plugin.publication.metrics.exposition import Family, render
from tests.plugin.fakes import VERSION, gpu
from tests.plugin.metrics.reading import Page, read_page

HEALTHY = Inventory(VERSION, (Device(gpu(0), "/dev/nvidia0"), Device(gpu(1), "/dev/nvidia1")))
BROKEN = replace(HEALTHY, devices=(HEALTHY.devices[0], replace(HEALTHY.devices[1], unhealthy="gpu is lost")))


def page(counters: Counters) -> Page:
    return read_page(render(counters.families()))


@given(st.lists(st.floats(0, 100)), st.lists(st.floats(0.001, 50), min_size=1, unique=True))
def test_a_histogram_counts_every_value_in_each_bucket_that_it_fits(values: list[float], bounds: list[float]) -> None:
    histogram = Histogram(tuple(sorted(bounds)))
    for value in values:
        histogram.observe(value)
    found = read_page(render([Family("h", "histogram", "H.", tuple(histogram.samples(())))]))
    buckets = {float(dict(labels)["le"]): count for labels, count in found.of("h_bucket").items()}
    assert buckets == {bound: sum(value <= bound for value in values) for bound in (*bounds, float("inf"))}
    assert found.value("h_count") == len(values)
    assert found.value("h_sum") == pytest.approx(sum(values))


def test_the_bounds_go_up() -> None:
    assert sorted(set(RPC_BOUNDS_S)) == list(RPC_BOUNDS_S)


def test_calls_are_told_apart_by_method_and_status() -> None:
    counters = Counters()
    counters.called("Allocate", "OK", 0.002)
    counters.called("Allocate", "OK", 0.2)
    counters.called("Allocate", "INVALID_ARGUMENT", 0.001)
    found = page(counters)
    assert found.of("grapnel_rpc_duration_seconds_count") == {
        (("method", "Allocate"), ("code", "INVALID_ARGUMENT")): 1,
        (("method", "Allocate"), ("code", "OK")): 2,
    }
    assert found.of("grapnel_rpc_duration_seconds_sum")[("method", "Allocate"), ("code", "OK")] == 0.202
    at = (("method", "Allocate"), ("code", "OK"), ("le", "0.0025"))
    assert found.of("grapnel_rpc_duration_seconds_bucket")[at] == 1


def test_allocations_are_counted_by_gpu() -> None:
    counters = Counters()
    counters.allocated(["GPU-b", "GPU-a"])
    counters.allocated(["GPU-b::1"])  # a share
    assert page(counters).of("grapnel_device_allocations_total") == {(("UUID", "GPU-a"),): 1, (("UUID", "GPU-b"),): 2}


def test_registrations_are_counted_by_resource() -> None:
    counters = Counters()
    for resource in ("b.c/gpu", "a.b/gpu", "b.c/gpu"):
        counters.registered(resource)
    assert page(counters).of("grapnel_kubelet_registrations_total") == {
        (("resource", "a.b/gpu"),): 1,
        (("resource", "b.c/gpu"),): 2,
    }


def test_a_daemon_that_nobody_called_has_nothing_to_tell() -> None:
    assert page(Counters()).samples == {}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(HEALTHY, HEALTHY, (), id="nothing changed"),
        pytest.param(Inventory(), HEALTHY, (), id="healthy from the start"),
        pytest.param(Inventory(), BROKEN, ((gpu(1).uuid, "unhealthy"),), id="broken when it was first seen"),
        pytest.param(HEALTHY, BROKEN, ((gpu(1).uuid, "unhealthy"),), id="one broke"),
        pytest.param(BROKEN, HEALTHY, ((gpu(1).uuid, "healthy"),), id="it recovered"),
        pytest.param(BROKEN, BROKEN, (), id="it stays broken"),
        pytest.param(
            BROKEN, without_driver(BROKEN, "driver not loaded"), ((gpu(0).uuid, "unhealthy"),), id="the driver went"
        ),
        pytest.param(HEALTHY, Inventory(), (), id="all are forgotten"),
    ],
)
def test_transitions(before: Inventory, now: Inventory, expected: tuple[tuple[str, str], ...]) -> None:
    assert transitions(before, now) == expected


def test_transitions_add_up() -> None:
    counters = Counters()
    for before, now in ((HEALTHY, BROKEN), (BROKEN, HEALTHY), (HEALTHY, BROKEN)):
        counters.observed(before, now)
    assert page(counters).of("grapnel_health_transitions_total") == {
        (("UUID", gpu(1).uuid), ("to", "healthy")): 1,
        (("UUID", gpu(1).uuid), ("to", "unhealthy")): 2,
    }
