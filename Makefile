# Two commands do everything on a fresh machine with Python 3.11, pip, git and make:
#   make demo    compare methods on embedded data, with unequal work and lossy links
#   make test    lint, types and tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-browser format clean

demo: $(VENV)/installed
	$(BIN)/fairlead demo

test: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

# The report page in a real browser: needs chromium and chromedriver beside what `make test` needs.
test-browser: $(VENV)/installed-test
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { echo "make test-browser needs chromium and chromedriver (Debian: chromium, chromium-driver)." >&2; exit 1; }
	$(BIN)/pytest tests/reports/browser_checks.py

format: $(VENV)/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist
