"""What Prometheus is told about this node's GPUs and about the daemon itself, on `/metrics`.

`catalogue` is the table of everything that may be told, `devices` and `counters` make families of it, `exposition`
makes text of those, `scrape` puts a page together and `server` hands it out. Not here: asking NVML (`driver.nvml`)
or the kubelet (`kubelet`).
"""
