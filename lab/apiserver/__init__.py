"""An API server in memory, over real HTTP: Nodes, pods, watches, evictions and leases of fleets that no machine holds.

    with serving(Store()) as server:
        server.url                       # "http://127.0.0.1:…"; requests are counted in server.requests

It answers as kube-apiserver does as far as grapnel asks; tests on a real one hold both to the same behaviour. What a
real one does rarely, it does when it is told to: forget versions, lose events, fall silent, be slow or away.
"""

from lab.apiserver.server import Server, serving
from lab.apiserver.store import Store

__all__ = ["Server", "Store", "serving"]
