# Every target does its own set-up; a second run reuses what the first one built (XDG cache).
PYTHON ?= python3
SETUP = $(PYTHON) -P -m lab.setup
export PYTHONPATH = $(CURDIR)

.PHONY: help demo test check lab bench environment clean
help:       ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14
demo:       ## set everything up and watch a bare node become a GPU node
	@$(SETUP) demo
test:       ## set everything up and pass every test
	@$(SETUP) test
check:      ## format, lint, types, import contracts, unit tests: under a minute
	@$(SETUP) check
lab:        ## build what the laboratory needs, once
	@$(SETUP) lab
bench:      ## print the measured figures, each with its floor beside it
	@$(SETUP) bench
environment: ## host packages and .venv only
	@$(SETUP) environment
clean:      ## remove what this checkout built (the XDG cache stays)
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .ansible
