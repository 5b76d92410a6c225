# Every target does its own set-up; a second run reuses what the first one built (XDG cache).
# A distribution builds its Python with more optimization than most people do: every process takes a fifth less.
ifndef PYTHON
PYTHON := $(shell /usr/bin/python3 -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/)python3
endif
TASK = $(PYTHON) -P -m tasks
export PYTHONPATH = $(CURDIR)

.PHONY: help demo quick test long fuzz model crashes e2e check lab bench cluster cluster-status cluster-down environment docs supported-gpus figures collection-readme molecule release image clean
help:       ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
demo:       ## set everything up and watch a bare node become a GPU node
	@$(TASK) demo
test:       ## set everything up and pass every test
	@$(TASK) test
long:       ## pass the tests that take too long for make test, and each role's Molecule scenario (an hour)
	@$(TASK) long
fuzz:       ## let fuzzers loose on the parsers for half an hour, or SECONDS=n; make test does a minute of it
	@$(TASK) fuzz
model:      ## explore 100,000 interleavings of what may happen to rollouts from terminals, and as many with a controller beside them (three hours), or RUNS=n of each; make test does a share of it
	@$(TASK) model
crashes:    ## kill a driver's exchange at each of its moments, and an apply of a bare node at each of its tasks, and apply again; end the Job of a swap at each of its steps; uninstall the chart in mid-rollout (an hour and a half); make test does three and two of them
	@$(TASK) crashes
e2e:        ## set up a real Kubernetes of three GPU nodes and pass its tests; KUBECONFIG=file: on a cluster of your own; KUBERNETES=1.37.2: with another release
	@GRAPNEL_KUBERNETES='$(or $(KUBERNETES),$(GRAPNEL_KUBERNETES))' $(TASK) e2e
molecule:   ## set everything up and run the Molecule scenarios of all roles on booted nodes
	@$(TASK) molecule
quick:      ## the unit tests that take no time: half a minute
	@$(TASK) quick
check:      ## format, lint, types, import contracts, unit tests: about five minutes
	@$(TASK) check
lab:        ## build what the lab needs, once
	@$(TASK) lab
bench:      ## print the measured figures, each with its floor beside it
	@$(TASK) bench
cluster:    ## start a real Kubernetes of three GPU nodes, leave it running and show how to upgrade its driver (FOLDER=dir keeps its declaration there; CONTROLLER=1: by grapnel's controller, from image and chart; CRIO=1: with a node that has CRI-O)
	@$(TASK) cluster
cluster-status: ## show the cluster's control plane, nodes and pods
	@$(PYTHON) -P -m lab cluster status
cluster-down: ## remove the cluster and everything that it made, also after a crash
	@$(PYTHON) -P -m lab cluster down
environment: ## host packages and .venv only
	@$(TASK) environment
docs:       environment ## build the documentation site in dist/site, without a network; a link or an anchor that leads nowhere fails it
	@.venv/bin/python -P -m tasks.site
supported-gpus: environment ## renew the list of GPUs: FILE=supported-gpus.json of a driver, DRIVER=its version
	@.venv/bin/python -P -m tasks.generated.supported_gpus '$(FILE)' '$(DRIVER)'
figures:    environment ## print how large the sources are, what lies side by side and what goes in circles, each with its limit
	@.venv/bin/python -P -m tasks.figures
collection-readme: environment ## write the tables of role variables in the collection's README
	@.venv/bin/python -P -m tasks.generated.collection_readme
release:    environment ## make wheel, collection, chart, image, checksums and bill of materials in dist/release (needs root)
	@.venv/bin/python -P -m tasks.release
image:      environment ## build the image of grapnel in dist/image, from Debian's packages and the wheel (needs root)
	@.venv/bin/python -P -m tasks.image
clean:      ## remove what this checkout built (the XDG cache stays)
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .ansible
