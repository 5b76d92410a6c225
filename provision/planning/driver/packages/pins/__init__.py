"""Keeps a driver's packages at their version: one file for each package manager, values and text only.

apt has a file of our own. dnf's version locks and zypper's locks stand in files that belong to everybody, so the node
edits them; here is what an entry says.
"""
