"""Kernel modules that nodes build for others: which those are, who builds them, and what is believed of the result.

How nodes are asked for it belongs to `provision.apply`; how a node builds and checks a module, to the collection.
"""
