"""From an allotment to the list of operations. Pure: what is planned can be shown before anything happens."""
