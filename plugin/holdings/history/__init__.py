"""What happened to the devices: every allocation with the choice behind it, and every change of a device's state.

It decides nothing and delays nothing: people look at it with `grapnel-node explain`.
"""
