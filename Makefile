# Every target sets itself up: it creates .venv and installs what it needs, again only when the requirements changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
OUT    ?= runs/demo
SOAK   ?= runs/soak
# Two processes with one thread each fill two cores. Each runs neighbouring tests, which share fixtures; one that has
# finished takes over the end of what the other has left.
TESTS  := $(BIN)/python -m pytest -n 2 --dist worksteal

# Each of the hundreds of processes that the tests start would compile lwd and its tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-gpu lint style bench soak soak-quick audit clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo      from the embedded images to a report in five to seven minutes ($(OUT)/report.html)"
	@echo "make test      lint and the fast tests"
	@echo "make test-all  lint, all tests (those in a browser, if there is a chromium), make audit, make soak-quick"
	@echo "make test-gpu  50 steps of lwd-xl on this machine's GPU, a resumption and samples, beside what lwd plan says"
	@echo "make soak      hours of hostile files, kills and faults, as a table (resumable; $(SOAK)/state.json)"
	@echo "make soak-quick  the same in about ten minutes; part of make test-all"
	@echo "make audit     known vulnerabilities of the installed packages (pip-audit); part of make test-all"
	@echo "make lint      ruff and mypy"
	@echo "make bench     the scripts in benchmarks/ at their kept sizes (hours)"
	@echo "make clean     remove .venv and caches"

demo: $(VENV)/.ready-run
	$(BIN)/lwd demo --out $(OUT)

# mypy, which takes one core for half a minute, runs beside the tests; its output follows theirs.
test: style
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & checked=$$!; \
	echo '$(TESTS) -m "not slow"'; $(TESTS) -m "not slow"; tested=$$?; \
	wait $$checked; typed=$$?; echo "$(BIN)/mypy"; cat $(VENV)/mypy.log; exit $$((tested | typed))

test-all: lint $(VENV)/.ready-browser
	$(TESTS)
	$(MAKE) audit
	$(MAKE) soak-quick

# CUDA builds of torch: make test-gpu after installing one into .venv, if pip chose another.
test-gpu: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -s tests/gpu

lint: style
	$(BIN)/mypy

style: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/.ready-dev
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script --json || exit 1; done

# Forked processes with one thread each.
soak: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m soak --out $(SOAK)

soak-quick: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m soak --out $(SOAK)-quick --quick

audit: $(VENV)/.ready-dev
	@$(PIP) install pip-audit || true
	$(BIN)/python tools/audit.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis

# Written after venv has finished: an interrupted one is made again from nothing.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "lwd needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1); run make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The stamp is written last, so an interrupted installation is taken up again.
$(VENV)/.ready-run: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "Installing lwd into $(VENV) (a minute or two the first time) ..."
	$(PIP) install -c constraints.txt -e .
	@touch $@

# Only the driver: the browser itself is the system's (Debian: apt-get install chromium).
$(VENV)/.ready-browser: pyproject.toml constraints.txt | $(VENV)/.ready-dev
	$(PIP) install -c constraints.txt -e '.[browser]'
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/.created
	@echo "Installing lwd with its test tools into $(VENV) (a minute or two the first time) ..."
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.ready-run
