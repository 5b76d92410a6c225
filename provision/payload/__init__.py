"""What nodes get of grapnel: deterministic archives, named by the digest of their content.

Builds them (``python -m provision.payload build``) and reads them back. Which node gets which archive is decided by
``provision.planner``; unpacking belongs to the roles.
"""
