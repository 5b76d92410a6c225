"""Settings of NVIDIA's device plugin: flags, variables and the file, read whole."""
