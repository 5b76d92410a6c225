"""Changes a container's hostile root: operations and the system calls that apply them, all or nothing."""
