"""Tells how a fleet's upgrade stands: each node's state, why it waits or failed, what follows, what to do. Pure.

What was seen comes in as values (``model``), from ``provision.cluster``; how it looks belongs to ``provision.report``.
"""
