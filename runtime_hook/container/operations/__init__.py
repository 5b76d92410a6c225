"""The operations that a plan is made of: values that say what they will do, and do it through ``Syscalls``.

A module for each kind, imported where a plan has one of them: a container pays for what it is given alone.
"""
