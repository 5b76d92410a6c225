"""How engines without a hook of their own are made to start ours: the wrapper runtime (Docker) and the CDI file."""
