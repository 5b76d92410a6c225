"""The device plugin service: one small method per call of the kubelet.

Errors of a request become a status with a short text: the text travels in a header of limited size, so
it never repeats what the caller sent at length.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from plugin.allocation import allocate
from plugin.errors import DeviceNotReady, InvalidRequest, RequestError
from plugin.kubelet.messages import container_response, device_list, plugin_options
from plugin.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from plugin.preference.choice import prefer
from plugin.preference.search import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.allocation import Holdings
    from plugin.kubelet.board import Board
    from plugin.kubelet.counting import KubeletCounter
    from plugin.log import Journal

_Context = grpc.aio.ServicerContext  # without its type arguments: grpcio's own class takes none
_STATUS = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    DeviceNotReady: grpc.StatusCode.FAILED_PRECONDITION,
}
SERVICE = "v1beta1.DevicePlugin"
_PREFERENCE_S = 1.0  # far above what it takes: the kubelet admits no other pod meanwhile


class DevicePluginService:
    """Answers the kubelet from the board."""

    def __init__(
        self, board: Board, journal: Journal, counter: KubeletCounter, holdings: Holdings | None = None
    ) -> None:
        self._board = board
        self._journal = journal
        self._counter = counter
        self._holdings = holdings

    async def get_device_plugin_options(
        self, _request: api_pb2.Empty, _context: _Context[Any, Any]
    ) -> api_pb2.DevicePluginOptions:
        """Say which optional calls are worth making."""
        return plugin_options()

    async def list_and_watch(self, _request: api_pb2.Empty, context: _Context[Any, Any]) -> None:
        """Send the list now and after every change; end after the last one."""
        with self._board.stream() as stream:
            while True:
                shown = self._board.current
                await context.write(device_list(shown.offers))
                stream.sent(shown)
                if shown.is_last:
                    return
                await shown.superseded.wait()

    async def get_preferred_allocation(
        self, request: api_pb2.PreferredAllocationRequest, context: _Context[Any, Any]
    ) -> api_pb2.PreferredAllocationResponse:
        """Choose among the devices that are free."""
        response = api_pb2.PreferredAllocationResponse()
        deadline = time.monotonic() + _PREFERENCE_S
        try:
            for asked in request.container_requests:
                preferred = prefer(
                    self._board.current.table,
                    asked.available_deviceIDs,
                    asked.must_include_deviceIDs,
                    asked.allocation_size,
                    Limits(is_late=lambda: time.monotonic() > deadline),
                )
                response.container_responses.add(deviceIDs=preferred.chosen)
                if preferred.cut_off:
                    self._journal.info("preference bounded", devices=",".join(preferred.chosen), why=preferred.cut_off)
        except RequestError as error:
            await self._refuse(context, "preference", error)
        return response

    async def allocate(self, request: api_pb2.AllocateRequest, context: _Context[Any, Any]) -> api_pb2.AllocateResponse:
        """Answer what the containers get; all of them or none."""
        response = api_pb2.AllocateResponse()
        try:
            if not request.container_requests:
                raise InvalidRequest("the request names no container")
            for asked in request.container_requests:
                answer = allocate(self._board.current.table, asked.devices_ids, self._holdings)
                response.container_responses.append(container_response(answer))
                self._journal.info("allocated", devices=",".join(answer.device_ids))
                self._counter.allocated(answer.device_ids)
        except RequestError as error:
            await self._refuse(context, "allocation", error)
        return response

    async def pre_start_container(
        self, _request: api_pb2.PreStartContainerRequest, _context: _Context[Any, Any]
    ) -> api_pb2.PreStartContainerResponse:
        """Nothing is to be done before a start; answered for kubelets that ask all the same."""
        return api_pb2.PreStartContainerResponse()

    async def _refuse(self, context: _Context[Any, Any], call: str, error: RequestError) -> NoReturn:
        self._journal.warning(f"{call} refused", problem=error.message)
        await context.abort(_STATUS[type(error)], error.message)
        raise AssertionError  # abort always raises

    def _timed(self, method: Callable[[Any, _Context[Any, Any]], Awaitable[Any]], name: str) -> Any:  # noqa: ANN401 - a handler of gRPC's
        async def call(request: Any, context: _Context[Any, Any]) -> Any:  # noqa: ANN401 - generated classes
            started, code = time.monotonic(), "UNKNOWN"
            try:
                answer = await method(request, context)
                code = "OK"
            except grpc.aio.AbortError:
                code = context.code().name
                raise
            finally:
                self._counter.called(name, code, time.monotonic() - started)
            return answer

        return call

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the table from method names to methods."""

        def unary(name: str, method: Any, request: Any, response: Any) -> grpc.RpcMethodHandler[Any, Any]:  # noqa: ANN401 - generated classes
            return grpc.unary_unary_rpc_method_handler(
                self._timed(method, name),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )

        methods = {
            "GetDevicePluginOptions": unary(
                "GetDevicePluginOptions", self.get_device_plugin_options, api_pb2.Empty, api_pb2.DevicePluginOptions
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.list_and_watch,
                request_deserializer=api_pb2.Empty.FromString,
                response_serializer=api_pb2.ListAndWatchResponse.SerializeToString,
            ),
            "GetPreferredAllocation": unary(
                "GetPreferredAllocation",
                self.get_preferred_allocation,
                api_pb2.PreferredAllocationRequest,
                api_pb2.PreferredAllocationResponse,
            ),
            "Allocate": unary("Allocate", self.allocate, api_pb2.AllocateRequest, api_pb2.AllocateResponse),
            "PreStartContainer": unary(
                "PreStartContainer",
                self.pre_start_container,
                api_pb2.PreStartContainerRequest,
                api_pb2.PreStartContainerResponse,
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)
