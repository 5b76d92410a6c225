from __future__ import annotations

import pytest

from plugin.base.errors import ClusterError
from plugin.publication.node_object.api.access import Proxy, find_proxy

URL = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("excluded", "host", "is_used"),
    [
        pytest.param("", "api.example", True, id="nothing is excluded"),
        pytest.param("*", "api.example", False, id="everything is"),
        pytest.param("example", "api.example", False, id="a domain, and all below it"),
        pytest.param("api.example", "api.example", False, id="the name itself"),
        pytest.param(".api.example", "api.example", True, id="what is below the name"),
        pytest.param("*.example", "api.example", False, id="a star for what is below"),
        pytest.param("pi.example", "api.example", True, id="the end of a word is no domain"),
        pytest.param("a, API.Example ,b", "api.example", False, id="one of several, in capitals"),
        pytest.param("api.example:443", "api.example", True, id="another port"),
        pytest.param("api.example:6443", "api.example", False, id="the port"),
        pytest.param("10.0.0.0/8", "10.96.0.1", False, id="a network"),
        pytest.param("10.0.0.0/8", "192.168.0.1", True, id="another network"),
        pytest.param("10.96.0.1", "10.96.0.1", False, id="an address"),
        pytest.param("fd00::/8", "fd00::1", False, id="a network of IPv6"),
        pytest.param("[fd00::1]:6443", "fd00::1", False, id="an address of IPv6 with the port"),
        pytest.param("", "localhost", False, id="this machine by name"),
        pytest.param("", "127.0.0.2", False, id="this machine by address"),
        pytest.param("", "::1", False, id="this machine by its address of IPv6"),
    ],
)
def test_what_goes_through_the_environments_proxy(excluded: str, host: str, is_used: bool) -> None:  # noqa: FBT001 - a column
    found = find_proxy(host, 6443, None, {"HTTPS_PROXY": URL, "NO_PROXY": excluded})
    assert (found == Proxy("proxy.example", 3128)) is is_used


def test_small_letters_count_and_capitals_come_first() -> None:
    assert find_proxy("a.b", 1, None, {"https_proxy": "proxy.example"}) == Proxy("proxy.example", 80)
    assert find_proxy("a.b", 1, None, {"https_proxy": "x", "HTTPS_PROXY": URL}) == Proxy("proxy.example", 3128)
    assert find_proxy("a.b", 1, None, {"HTTPS_PROXY": URL, "no_proxy": "b"}) is None
    assert find_proxy("a.b", 1, None, {"HTTP_PROXY": URL}) is None


def test_the_kubeconfigs_proxy_comes_before_the_environment() -> None:
    environment = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert find_proxy("a.b", 1, URL, environment) == Proxy("proxy.example", 3128)


@pytest.mark.parametrize("url", ["https://proxy:1", "socks5://proxy:1", "http://", "http://proxy:port", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ClusterError, match="HTTPS_PROXY"):
        find_proxy("a.b", 1, None, {"HTTPS_PROXY": url})
