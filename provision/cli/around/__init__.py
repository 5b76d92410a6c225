"""The verbs around them: bundles, and what is about the program itself."""
