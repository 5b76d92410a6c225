"""Enforces the hook's time limit: a timer whose expiry is raised, but never in the middle of a change.

Between ``hold`` and ``release`` an expiry is only noted, and raised at ``release``: so a change and the record of how
to undo it are one thing. A system call that no signal but SIGKILL interrupts (a file system that does not answer) is
not ended by this timer: for that ``container.libc.kill_after`` is set a little later, once ctypes is there.
"""

from __future__ import annotations

from runtime_hook.base.errors import DeadlineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the C half; the Python half imports enum (3 ms)

DEFAULT_TIMEOUT_S = 10
GRACE_S = 2


class Deadline:
    """One timer for one run of the hook."""

    def __init__(self) -> None:
        self._timeout_s: float = DEFAULT_TIMEOUT_S
        self._holds = 0
        self._expired = False

    def start(self, timeout_s: float) -> None:
        """Start the timer, or start it again with another limit."""
        self._timeout_s = timeout_s
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, timeout_s)

    def stop(self) -> None:
        """End the limit: what follows is undoing or finishing."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._expired = False

    def last_s(self) -> float:
        """Return in how many seconds not even undoing may go on any more."""
        return signal.getitimer(signal.ITIMER_REAL)[0] + GRACE_S

    def hold(self) -> None:
        """Put an expiry off until the matching release."""
        self._holds += 1

    def release(self) -> None:
        """Raise an expiry that fell into the held part."""
        self._holds -= 1
        if self._expired and not self._holds:
            self.expire()

    def expire(self) -> None:
        """Raise the error of an expired limit."""
        self._expired = False
        raise DeadlineError(
            f"not finished within {self._timeout_s:g} s", "timeoutS in the hook's configuration is the limit"
        )

    def _on_alarm(self, _number: int, _frame: object) -> None:
        self._expired = True
        if not self._holds:
            self.expire()
