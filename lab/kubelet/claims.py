"""The kubelet's side of ResourceClaims: finds a driver by its socket, takes it, has claims prepared and given back.

And what others have done before a kubelet asks: a claim as the scheduler leaves it, and its pod on the node.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import grpc

from lab.kubelet.proto.dra.v1 import api_pb2
from lab.kubelet.proto.dra_health.v1alpha1 import api_pb2 as health_pb2
from lab.kubelet.proto.pluginregistration.v1 import api_pb2 as registration_pb2
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lab.cluster import ControlPlane

DRIVER, NAMESPACE = "gpu.nvidia.com", "default"
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_REGISTRATION = "/pluginregistration.Registration"
_HEALTH = "/v1alpha1.DRAResourceHealth/NodeWatchResources"
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
_TIMEOUT_S = 30.0


class DraKubelet:
    """One connection to a driver of this name below a kubelet's root, whose folder of sockets is made."""

    def __init__(self, root: Path, driver: str = DRIVER) -> None:
        self.driver = driver
        self.registry = root / "plugins_registry"
        self.registry.mkdir(exist_ok=True)
        self._channel: grpc.Channel | None = None

    @property
    def sockets(self) -> list[Path]:
        """The sockets by which the driver wants to be found."""
        return list(self.registry.glob(f"*{self.driver}*.sock"))

    def connect(self) -> None:
        """Connect to the driver's socket, however long its path is, and stay connected."""
        (socket,) = self.sockets
        with closing(SocketAddress(self.registry, socket.name)) as address:
            self._channel = grpc.insecure_channel(address.target, options=_OPTIONS)
            grpc.channel_ready_future(self._channel).result(timeout=_TIMEOUT_S)

    def hang_up(self) -> None:
        """Leave, as a kubelet that stops does."""
        if self._channel is not None:
            self._channel.close()

    def take(self) -> registration_pb2.PluginInfo:
        """Take the driver that is connected; returns what it says of itself."""
        info: registration_pb2.PluginInfo = self._call(
            f"{_REGISTRATION}/GetInfo", registration_pb2.InfoRequest(), registration_pb2.PluginInfo
        )
        status = registration_pb2.RegistrationStatus(plugin_registered=True)
        answer = registration_pb2.RegistrationStatusResponse
        self._call(f"{_REGISTRATION}/NotifyRegistrationStatus", status, answer)
        return info

    def prepare(self, name: str, uid: str) -> api_pb2.NodePrepareResourceResponse:
        """Have a claim prepared."""
        asked = api_pb2.NodePrepareResourcesRequest(claims=[api_pb2.Claim(namespace=NAMESPACE, name=name, uid=uid)])
        answer = self._call(f"{_SERVICE}/NodePrepareResources", asked, api_pb2.NodePrepareResourcesResponse)
        found: api_pb2.NodePrepareResourceResponse = answer.claims[uid]
        return found

    def unprepare(self, name: str, uid: str) -> str:
        """Give a claim back; returns what is said against it."""
        asked = api_pb2.NodeUnprepareResourcesRequest(claims=[api_pb2.Claim(namespace=NAMESPACE, name=name, uid=uid)])
        answer = self._call(f"{_SERVICE}/NodeUnprepareResources", asked, api_pb2.NodeUnprepareResourcesResponse)
        return str(answer.claims[uid].error)

    def health(self) -> dict[str, int]:
        """Return what the driver says first of each device."""
        watch = self._connected().unary_stream(
            _HEALTH,
            request_serializer=health_pb2.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health_pb2.NodeWatchResourcesResponse.FromString,
        )
        told = next(iter(watch(health_pb2.NodeWatchResourcesRequest(), timeout=_TIMEOUT_S)))
        return {each.device.device_name: each.health for each in told.devices}

    def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._connected().unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return call(request, timeout=_TIMEOUT_S)

    def _connected(self) -> grpc.Channel:
        if self._channel is None:
            raise RuntimeError("connect first")
        return self._channel


def published(control_plane: ControlPlane, node: str) -> list[dict[str, Any]]:
    """Return the ResourceSlices of a node."""
    path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName={node}"
    found: list[dict[str, Any]] = control_plane.api.read(path)["items"]
    return found


def create_allocated(
    control_plane: ControlPlane,
    node: str,
    name: str,
    devices: Sequence[str],
    config: Mapping[str, Any] | None = None,
    *,
    also: Mapping[str, str] | None = None,
    **result: object,
) -> str:
    """Make a pod of a node with a claim that the scheduler gave these devices; returns the claim's UID.

    `config` are the parameters of an opaque config of the claim, further keys are those of each result. `also` are
    devices of other drivers, which it was given for the same request: device → driver.
    """
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": len(devices)}}
    driver = result.get("driver", DRIVER)
    configs = [] if config is None else [{"opaque": {"driver": driver, "parameters": config}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request], "config": configs}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        },
    }
    create = ["create", "-f", "-", "-o", "json"]
    made = json.loads(control_plane.kubectl(create, input_text=json.dumps(claim)))
    control_plane.kubectl(create, input_text=json.dumps(pod))
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": each, **result} for each in devices]
    results += [{"request": "gpu", "driver": of, "pool": node, "device": each} for each, of in (also or {}).items()]
    given = {"results": results, "config": [{"source": "FromClaim", **each} for each in configs]}
    status = json.dumps({"status": {"allocation": {"devices": given}}})
    control_plane.kubectl(["patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", status])
    return str(made["metadata"]["uid"])
