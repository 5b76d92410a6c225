"""The device plugin service: one small method per call of the kubelet.

Errors of a request become a status with a short text: the text travels in a header of limited size, so
it never repeats what the caller sent at length.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from plugin.base.errors import DeviceNotReady, InvalidRequest, RequestError
from plugin.devices.allocation.table import allocate
from plugin.kubelet.device_plugin import api
from plugin.kubelet.device_plugin.messages import container_response, device_list, plugin_options
from plugin.kubelet.device_plugin.nearby import Nearby
from plugin.kubelet.device_plugin.observers import NoAllocationObserver
from plugin.kubelet.rpc.serving import ServerStream, Unary
from plugin.kubelet.rpc.status import CallError, Code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from plugin.base.log import Logger
    from plugin.devices.allocation.answer import ContainerAnswer
    from plugin.kubelet.device_plugin.observers import AllocationObserver, CallCounter
    from plugin.kubelet.device_plugin.publisher import Publisher
    from plugin.kubelet.rpc.codec import Message
    from plugin.kubelet.rpc.serving import Method

_STATUS = {
    InvalidRequest: Code.INVALID_ARGUMENT,
    DeviceNotReady: Code.FAILED_PRECONDITION,
}
SERVICE = "v1beta1.DevicePlugin"
_PREFERENCE_S = 1.0  # far above what it takes: the kubelet admits no other pod meanwhile


class DevicePluginService:
    """Answers the kubelet from what is published."""

    def __init__(
        self,
        publisher: Publisher,
        logger: Logger,
        counter: CallCounter,
        observer: AllocationObserver | None = None,
        *,
        nearby: Nearby | None = None,
    ) -> None:
        self._publisher = publisher
        self._log = logger
        self._counter = counter
        self._observer = observer or NoAllocationObserver()
        self._nearby = nearby or Nearby()

    async def get_device_plugin_options(self, _request: api.Empty) -> api.DevicePluginOptions:
        """Say which optional calls are worth making."""
        return plugin_options()

    async def list_and_watch(
        self, _request: api.Empty, send: Callable[[api.ListAndWatchResponse], Awaitable[None]]
    ) -> None:
        """Send the list now and after every change; end after the last one."""
        with self._publisher.stream() as stream:
            while True:
                shown = self._publisher.current
                await send(device_list(shown.offers))
                stream.sent(shown)
                if shown.is_last:
                    return
                await shown.superseded.wait()

    async def get_preferred_allocation(
        self, request: api.PreferredAllocationRequest
    ) -> api.PreferredAllocationResponse:
        """Choose among the devices that are free."""
        from plugin.devices.allocation.preference.choice import prefer  # noqa: PLC0415 - loaded after the first list (plugin.later)
        from plugin.devices.allocation.preference.search import Limits  # noqa: PLC0415 - see above

        responses = []
        deadline = time.monotonic() + _PREFERENCE_S
        table = self._publisher.current.table
        near = self._nearby.units(self._publisher.current)
        try:
            for asked in request.container_requests:
                required, size = asked.must_include_deviceIDs, asked.allocation_size
                available = self._observer.reliable(asked.available_deviceIDs, required, size)
                limits = Limits(is_late=lambda: time.monotonic() > deadline)
                preferred = prefer(table, available, required, size, limits, near=near)
                responses.append(api.ContainerPreferredAllocationResponse(deviceIDs=tuple(preferred.chosen)))
                self._observer.preferred(table.resource, available, required, preferred, size)
                if preferred.cut_off:
                    self._log.info("preference bounded", devices=",".join(preferred.chosen), why=preferred.cut_off)
        except RequestError as error:
            self._observer.refused(table.resource, (), f"no preference: {error.message}")
            raise self._refusal("preference", error) from error
        return api.PreferredAllocationResponse(container_responses=tuple(responses))

    async def allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        """Answer what the containers get; all of them or none."""
        ids = [device_id for asked in request.container_requests for device_id in asked.devices_ids]
        holdings = await self._observer.holdings(ids)
        shown = self._publisher.current
        table = shown.table
        try:
            if not request.container_requests:
                raise InvalidRequest("the request names no container")
            answers = [allocate(table, asked.devices_ids, holdings) for asked in request.container_requests]
        except RequestError as error:
            self._observer.refused(table.resource, ids, error.message)
            raise self._refusal("allocation", error) from error
        self._nearby.given(shown, ids)
        self._observer.giving(ids)  # at once: a claim may be prepared in the event loop's same turn
        # When the answer is sent: the kubelet waits for it.
        asyncio.get_running_loop().call_soon(self._tell, table.resource, answers)
        return api.AllocateResponse(container_responses=tuple(map(container_response, answers)))

    def _tell(self, resource: str, answers: Iterable[ContainerAnswer]) -> None:
        for answer in answers:
            self._log.info("allocated", devices=",".join(answer.device_ids))
            self._counter.allocated(answer.device_ids)
            self._observer.allocated(resource, answer.device_ids)

    async def pre_start_container(self, _request: api.PreStartContainerRequest) -> api.PreStartContainerResponse:
        """Nothing is to be done before a start; answered for kubelets that ask all the same."""
        return api.PreStartContainerResponse()

    def _refusal(self, call: str, error: RequestError) -> CallError:
        self._log.warning(f"{call} refused", problem=error.message)
        return CallError(_STATUS[type(error)], error.message)

    def _counted(self, name: str, method: Callable[[Any], Awaitable[Message]]) -> Callable[[Any], Awaitable[Message]]:
        async def answer(request: Message) -> Message:
            started, code = time.monotonic(), Code.UNKNOWN
            try:
                response = await method(request)
                code = Code.OK
            except CallError as error:
                code = error.code
                raise
            finally:
                self._counter.called(name, code.name, time.monotonic() - started)
            return response

        return answer

    def methods(self) -> dict[str, Method]:
        """Return the table from method paths to methods."""
        unary: dict[str, tuple[type[Message], Callable[[Any], Awaitable[Message]]]] = {
            "GetDevicePluginOptions": (api.Empty, self.get_device_plugin_options),
            "GetPreferredAllocation": (api.PreferredAllocationRequest, self.get_preferred_allocation),
            "Allocate": (api.AllocateRequest, self.allocate),
            "PreStartContainer": (api.PreStartContainerRequest, self.pre_start_container),
        }
        return {
            f"/{SERVICE}/ListAndWatch": ServerStream(api.Empty, self.list_and_watch),
            **{
                f"/{SERVICE}/{name}": Unary(request, self._counted(name, method))
                for name, (request, method) in unary.items()
            },
        }
