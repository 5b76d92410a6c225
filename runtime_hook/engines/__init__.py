"""Makes engines that read no hook files start the hook: the wrapper runtime (Docker) and the CDI file."""
