"""Serves HTTP with an end to everything: how many clients, what each may send, how long it may take."""

from provision.base.serving.server import BoundedHandler, BoundedServer, Limits

__all__ = ["BoundedHandler", "BoundedServer", "Limits"]
