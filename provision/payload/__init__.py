"""Builds and reads the payload: the deterministic archives that nodes install, named by the digest of their content.

``python -m provision.payload build`` builds it. Which node gets which archive is decided by ``provision.planner``;
unpacking belongs to the roles.
"""
