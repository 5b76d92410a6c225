"""Turns an exception about one node into that node's failure; the others go on."""

from __future__ import annotations

import logging

from provision.apply.errors import CanceledError
from provision.apply.follow import AGAIN
from provision.apply.model import Failure, Status
from provision.base.bug import describe_bug
from provision.base.errors import GrapnelError

_LOG = logging.getLogger(__name__)


def failure_of(error: Exception, doing: str) -> Failure:
    """Return the failure of the node that ``error`` is about; ``doing`` is such as "planning n1".

    An unexpected exception is reported as a bug, and its traceback is logged.
    """
    if isinstance(error, CanceledError):
        return Failure(Status.CANCELED, AGAIN)
    if isinstance(error, GrapnelError):
        return Failure(Status.FAILED, error.message)
    _LOG.debug("a bug while %s", doing, exc_info=error)
    return Failure(Status.FAILED, describe_bug(error, doing))
