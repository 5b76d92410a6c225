"""Programs and data of other projects that tests use, from Debian's packages and Go modules: nothing is installed."""
