"""The loader's view of an image: glibc's cache, written by us and never by ldconfig. Pure."""
