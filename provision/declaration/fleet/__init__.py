"""Knows the machines: read from an ordinary Ansible inventory, each with its effective declaration and its facts.

Merges the levels default < declaration file < groups < host and remembers where every value came from. Does not
change machines, does not plan, and does not know what a declaration may say (`provision.declaration.spec` does).
"""
