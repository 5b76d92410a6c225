"""Emulates a machine of another architecture: Debian for arm64 with its own kernel, by QEMU in software.

`image` builds kernel, initial RAM disk and disk once; `machine` boots them and runs commands inside; `agent` is what
answers there. Nothing that runs inside changes the disk of the cache.
"""
