"""gRPC over unix sockets, on h2: what the daemon needs of it and no more.

Calls with one request and one answer, and calls with one request and a stream of answers. Messages are
declared in Python and put on the wire by `codec`; h2 keeps the rules of HTTP/2. Not here: compression,
TLS, names and addresses, retries, and what any call means.

Sources: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), RFC 9113, the protobuf encoding guide.
"""
