"""Builds and reads the payload: the deterministic archives that nodes install, named by the digest of their content.

``python -m provision.planning.supply.payload build`` builds it. Which node gets which archive is decided by
``provision.planning.planner``; unpacking belongs to the roles.
"""
