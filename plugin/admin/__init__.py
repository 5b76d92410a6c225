"""The node's own tools talk to the running daemon here: one JSON object on a line in, one out, over a unix socket.

Only root may, and only to ask two things: `status`, and `look` (read the remembered release again and act
on it). The decision itself is never on the wire: it is in the file. Not here: what the daemon does.
"""

MAX_LINE_BYTES = 1024 * 1024  # an answer names every GPU of a node
