"""The verbs that write a declaration, check it and explain it."""
