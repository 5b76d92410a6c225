"""The node's own tools talk to the running daemon here: one JSON object on a line in, one out, over a unix socket.

Only root may, and only to ask three things: `status`, `look` (read the remembered release again and act
on it) and `health` (read the verdicts again). The decision itself is never on the wire: it is in a file.
Not here: what the daemon does.
"""

MAX_LINE_BYTES = 1024 * 1024  # an answer names every GPU of a node
