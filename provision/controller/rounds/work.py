"""The controller's hold on the lease of whoever changes nodes: taken while rounds run, given back when none does.

Who works at a terminal takes the same lease: of that one and the controller, each waits for the other. While nothing
runs, the controller does not have it, and a pause that an administrator writes on it is read now and then.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.lease import Tenure, hold, pause_of, read_lease
from provision.cluster.kubernetes.permissions import LEASE_NAME
from provision.rollout.errors import ClusterError, LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing

LOOK_S: Final = 5.0  # between two requests about a lease that this process does not have


class Work:
    """The hold on the lease; all but `check`, `pause` and `publish` belong to the loop's thread.

    ``lead`` raises where this process leads no more. ``progress`` is what every write of the lease carries along.
    ``clock`` counts seconds.
    """

    def __init__(
        self,
        api: Api,
        holder: str,
        *,
        lead: Callable[[], None],
        progress: Callable[[], str],
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._api, self._holder = api, holder
        self._lead, self._progress, self._say, self._clock = lead, progress, say, clock
        self._held = contextlib.ExitStack()
        self._tenure: Tenure | None = None
        self._pause: Pause | None = None
        self._next_try_s = self._next_look_s = clock()
        self._in_the_way = ""

    @property
    def in_the_way(self) -> str:
        """Why the lease could not be taken when that was last tried, for people; empty where it was."""
        return self._in_the_way

    @property
    def is_lost(self) -> bool:
        """Whether the lease was taken, and another process may have it by now: rounds that run have to end."""
        tenure = self._tenure
        if tenure is None:
            return False
        with contextlib.suppress(LeaseLostError):
            tenure.check()
            return False
        return True

    def take(self) -> bool:
        """Tell whether rounds may begin; take the lease where it is not held yet. Tried again after a while."""
        if self._tenure is not None:
            return not self.is_lost
        now = self._clock()
        if now < self._next_try_s:
            return False
        tenure = Tenure(self._api, self._holder, progress=self._progress)
        try:
            self._held.enter_context(hold(tenure))
        except ClusterError as error:  # another process has it, or the API server does not answer
            self._next_try_s = now + LOOK_S
            if error.message != self._in_the_way:
                self._say(f"{error.message}: nothing begins before that has ended")
            self._in_the_way = error.message
            return False
        self._tenure, self._in_the_way = tenure, ""
        return True

    def give_back(self) -> None:
        """Let others change nodes; no round runs any more."""
        if self._tenure is None:
            return
        self._pause, self._next_look_s = self._tenure.pause, self._clock()
        self._held.close()
        self._tenure = None

    def look(self) -> None:
        """Learn now and then what is written on the lease, where this process does not have it."""
        now = self._clock()
        if self._tenure is not None or now < self._next_look_s:
            return
        self._next_look_s = now + LOOK_S
        with contextlib.suppress(ClusterError):  # what was known stays, until the next look
            lease = read_lease(self._api)
            self._pause = None if lease is None else pause_of(lease.metadata.annotations)

    @property
    def pause(self) -> Pause | None:
        """Who wants no further node to begin, as far as that is known."""
        tenure = self._tenure
        return self._pause if tenure is None else tenure.pause

    def check(self) -> None:
        """Raise LeaseLostError where a round may change nothing more: it leads no more, or has not got the lease."""
        self._lead()
        tenure = self._tenure
        if tenure is None:
            raise LeaseLostError(f"the lease {LEASE_NAME} of {self._api.name} was given back: nothing more is changed")
        tenure.check()

    def publish(self, standing: Standing) -> None:
        """Do nothing: ``progress`` is asked instead, whenever the lease is written."""
