"""HTTP/1.1 for whoever asks this node: one answer a connection, and nobody can hold the process."""
