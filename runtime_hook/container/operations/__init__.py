"""Defines the operations that a plan consists of: values that describe themselves and act through ``Syscalls``.

A module for each kind, imported where a plan has one of them: a container pays for what it is given alone.
"""
