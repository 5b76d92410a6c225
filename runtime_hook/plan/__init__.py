"""From an grant to the list of operations. Pure: what is planned can be shown before anything happens."""
