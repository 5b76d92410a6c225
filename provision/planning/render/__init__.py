"""Renders the files that a node's engine, hook and daemon read: values in, text out.

Files that belong to somebody else are parsed, changed as trees and written back with their comments, their order and
everything in them that is not ours. What is to be written where, and when, is decided by
``provision.planning.planner``.
"""
