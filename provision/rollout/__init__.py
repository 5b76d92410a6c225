"""Takes nodes out of service, changes their driver and brings them back, a few at a time.

``model`` holds the values, ``decide`` the pure decision, ``engine`` observes, decides and acts until nothing
is left. Where a node's state lives is ``provision.cluster``'s, how a node is changed ``provision.apply``'s.
"""
