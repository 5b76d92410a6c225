"""The node's own tools talk to the running daemon here: one JSON object on a line in, one out, over a unix socket.

Only root may, and only to ask six things: `status`, `look` (read the remembered release again and act on it),
`health` (read the verdicts again), `explain` (what happened to pods and devices), `limit` (set the memory limits
of a container that starts: contract `docs/contracts/memory-limit`) and `mig` (hold back the GPUs whose layout is being
changed, and say who has what). The decision itself is never on the wire: it is in a file, or in what the kubelet was
answered.
Not here: what the daemon does.
"""

MAX_LINE_BYTES = 8 * 1024 * 1024  # a thousand explained allocations, with 64 GPUs to choose from in each
