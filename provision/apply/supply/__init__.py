"""What nodes may be handed to stage drivers from: bundles, packages of installer files, modules that others built."""
