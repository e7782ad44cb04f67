"""One short file a family of requests, named as its messages are in `wire.messages`.

A handler decides nothing that a pure module could decide: it looks partitions up, calls, and puts the result
into a response. It is given the broker, the request and the connection, and registers itself with `@handles`.
"""
