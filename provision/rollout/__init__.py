"""Takes nodes out of service, changes their driver and brings them back, a few at a time.

``decision`` is pure, ``engine`` observes, decides and acts until nothing is left to do. Where a node's state lives is
asked through ``cluster``, which ``provision.cluster`` implements; how a node is changed belongs to ``provision.apply``.
"""
