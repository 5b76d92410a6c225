"""Serves how the upgrade of a fleet stands as a live page for browsers; changes nothing.

What is true comes from ``provision.rollout.status``, read as `grapnel status` reads it. Layers, the lowest first:
``looks`` and ``rows`` (pure: what is sent), ``feed`` (what has changed since), ``access`` (pure: who may look),
``server``. The page itself is in ``static``, without any step that builds it.
"""
