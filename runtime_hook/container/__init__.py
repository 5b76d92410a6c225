"""The container's side: operations and the system calls that carry them out on a hostile root, all or nothing."""
