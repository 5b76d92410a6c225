"""What the command line takes: verbs, arguments, options, exit codes, and the pages that are made of them."""
