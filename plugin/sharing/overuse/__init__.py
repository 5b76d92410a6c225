"""Who uses more of a GPU's memory than its units, where the driver limits no container, and what follows.

`measure` compares what was given with what verified processes use, `judgement` decides when that is told and acted on,
`owners` asks /proc, `keeper` does all of it at its pace. Not here: the Kubernetes API, and the page of metrics.
"""
