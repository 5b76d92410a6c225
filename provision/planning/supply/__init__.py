"""What nodes are brought: archives of grapnel itself, bundles, packages of installer files, built modules."""
