"""Deals with what dynamic loaders read: ELF files, glibc's cache, musl's path, where images keep libraries. Pure."""
