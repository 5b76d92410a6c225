"""The command line's grammar: verbs, options, exit codes."""
