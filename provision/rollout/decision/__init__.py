"""Decides what a rollout does next, and why each node that waits does: values in, values out.

Nothing here touches the world: time is an argument, and what is decided is carried out by ``provision.rollout.engine``.
"""
