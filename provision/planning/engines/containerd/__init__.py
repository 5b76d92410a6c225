"""Configures containerd: our drop-in, our handler in it, and the specification that its containers begin with."""
