# zcrawl: `make run` and `make test` are complete on a fresh Debian machine with Python >= 3.11.
# Each step leaves a stamp in .venv, so a second call does only what has changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# Where PYTHONDONTWRITEBYTECODE is set, each start would compile all sources again.
COMPILE := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q zcrawl console
# More processes than cores: most tests wait (tests/scheduling.py). A few tests start sooner with two.
JOBS ?= $(if $(ARGS),2,6)
ARGS ?=
# Bytecode of the tests is kept too: each process of pytest would compile all of them again.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -p tests.tries

POSTGRES_MANUAL := /usr/share/doc/postgresql-doc-15/html/index.html
PYTHON_MANUAL := /usr/share/doc/python3-doc/html/index.html

# Installs Debian packages, as root; says what is missing to everybody else. Minimal images tell
# dpkg to leave documentation out, and the manuals are what the tests crawl: they are let in again.
define apt_install
	if [ "$$(id -u)" -ne 0 ]; then \
	  echo "make: missing Debian packages. As root: apt-get install $(1)" >&2; exit 1; \
	fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make: no apt-get here; please install what Debian calls: $(1)" >&2; exit 1; \
	fi; \
	echo "make: installing Debian packages: $(1)" >&2; \
	install() { \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --reinstall \
	    -o Dpkg::Use-Pty=0 \
	    -o Dpkg::Options::=--path-include='/usr/share/doc/postgresql-doc-15*' \
	    -o Dpkg::Options::=--path-include='/usr/share/doc/python3*' $(1) >/dev/null; \
	}; \
	install 2>/dev/null || { apt-get update -qq && install; }
endef

.PHONY: help run test soak check format tables cluster bench bench-cluster bench-console bench-jobs bench-seeds \
  bench-hosts bench-ownership bench-politeness bench-dispatch bench-against bench-cluster-against \
  clean compiler packages redis

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

run: $(VENV)/.installed ## crawl the demo site, or URL=https://... (more flags: ARGS='--depth 2')
ifdef URL
	@$(BIN)/zcrawl crawl '$(URL)' $(ARGS)
else
	@$(BIN)/zcrawl demo $(ARGS)
endif

# Six processes that begin at once would each compile all tests in a fresh clone. (What cannot be
# collected is told by the run itself.)
$(VENV)/.tests-compiled: $(VENV)/.installed-dev
	@echo "make: compiling the tests" >&2
	@collect() { env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq -p no:xdist \
	    -p no:cacheprovider "$$@" >/dev/null || :; }; \
	  collect tests/unit & collect --ignore tests/unit; wait $$!
	@touch $@

test: $(if $(ARGS),,$(VENV)/.tests-compiled) $(VENV)/.installed-dev packages ## all tests (some of them: ARGS='tests/unit -k name')
	@$(PYTEST) -n $(JOBS) $(ARGS) || { \
	  code=$$?; [ $$code -eq 1 ] || exit $$code; \
	  echo "make: once more by themselves. What fails now is broken; the rest was short of time:"; \
	  $(PYTEST) --last-failed --last-failed-no-failures none --maxfail 20 -v $(ARGS); }

soak: $(VENV)/.installed-dev packages ## simulated and real faults for long: ARGS='--seeds 100000 --hours 8'
	@$(BIN)/python -m tests.simulation.soak $(ARGS)

check: $(VENV)/.installed-dev ## format, lint, types, import contracts, purity by folder
	@echo "ruff format"; $(BIN)/ruff format --check .
	@echo "ruff check"; $(BIN)/ruff check .
	@echo "mypy --strict"; $(BIN)/mypy --strict
	@echo "import contracts"; $(BIN)/lint-imports
	@echo "purity by folder, docstrings"; $(BIN)/python -m pytest -q tests/architecture
	@echo "worth a look: files above 500 lines, functions above 60"; \
	  $(BIN)/python -m tests.architecture.sizes

format: $(VENV)/.installed-dev ## rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs/reasons.md: $(VENV)/.installed-dev $(wildcard zcrawl/model/reasons/*.py)
	@$(BIN)/zcrawl reasons --markdown > $@

tables: $(VENV)/.installed-dev ## write the tables of the docs that come from a registry
	@$(BIN)/python -m tests.architecture.tables

cluster: $(VENV)/.installed-dev packages ## Consul, MariaDB, 3 masters, 4 workers, to play with
	@$(BIN)/python -m tests.servers.play_cluster

bench: $(VENV)/.installed-dev packages ## side by side with Scrapy; writes docs/benchmarks.md
	@$(BIN)/python -m tests.bench.bench $(ARGS)

bench-against: $(VENV)/.installed-dev packages ## this tree and another one in turns: TREE=../other
	@$(BIN)/python -m tests.bench.bench_against $(TREE) $(ARGS)

bench-cluster-against: $(VENV)/.installed-dev packages ## the same on clusters with keys: TREE=../other
	@$(BIN)/python -m tests.bench.bench_cluster_against $(TREE) $(ARGS)

bench-cluster: $(VENV)/.installed-dev packages ## failover, throughput and forwards on Consul + MariaDB
	@$(BIN)/python -m tests.bench.bench_cluster $(ARGS)

bench-console: $(VENV)/.installed-dev ## what the console costs, and what ten cost the leader
	@$(BIN)/python -m tests.bench.bench_console $(ARGS)

bench-jobs: $(VENV)/.installed-dev packages ## what extraction and outputs cost; docs/benchmarks.md
	@$(BIN)/python -m tests.bench.bench_jobs $(ARGS)

bench-politeness: $(VENV)/.installed-dev packages ## what the guard and robots.txt add to a crawl
	@$(BIN)/python -m tests.bench.bench_politeness $(ARGS)

bench-dispatch: $(VENV)/.installed-dev redis ## tasks beside Dask and Celery on Redis; docs/benchmarks.md
	@$(BIN)/python -m tests.bench.bench_dispatch $(ARGS)

bench-hosts: $(VENV)/.installed-dev ## the leader's CPU a page, with 10 and with 10,000 hosts
	@$(BIN)/python -m tests.bench.bench_leader $(ARGS)

bench-ownership: $(VENV)/.installed-dev ## owns() for 8 and 100 nodes, a changed list, an idle standalone node
	@$(BIN)/python -m tests.bench.bench_ownership $(ARGS)

bench-seeds: $(VENV)/.installed-dev ## what five million seeds need of memory
	@$(BIN)/python -m tests.bench.bench_seeds $(ARGS)

clean: ## remove the venv, caches and the demo's data
	@rm -rf $(VENV) .bench .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache build dist zcrawl-demo *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { $(call apt_install,python3 python3-venv); }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: zcrawl needs Python >= 3.11, $(PYTHON) is $$($(PYTHON) -V); try PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  $(call apt_install,python3-venv python3-pip); }
	@[ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  echo "make: creating $(VENV)" >&2; $(PYTHON) -m venv --clear $(VENV); }
	@touch $@

$(VENV)/.installed: pyproject.toml zcrawl/parse/_tags.c | $(VENV)/.made
	@echo "make: installing zcrawl into $(VENV)" >&2
	@$(PIP) --config-settings editable_mode=compat -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml zcrawl/parse/_tags.c | $(VENV)/.made compiler
	@echo "make: installing zcrawl and its tools into $(VENV)" >&2
	@$(PIP) --config-settings editable_mode=compat -e '.[dev,cluster,console,content,gateway,parquet,s3,warc,web]'
	@# By itself: playwright needs a newer greenlet than httpbin asks for (and never imports); pip
	@# refuses both at once, and says so here.
	@$(PIP) --config-settings editable_mode=compat -e '.[browser]'
	@$(COMPILE)
	@touch $@ $(VENV)/.installed

# zcrawl runs without what it compiles (zcrawl/parse/_tags.c), only slower; its tests do not.
compiler: | $(VENV)/.made
	@missing=; \
	command -v gcc >/dev/null || missing="$$missing gcc libc6-dev"; \
	$(BIN)/python -c 'import pathlib, sys, sysconfig; \
	  sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || \
	  missing="$$missing python3-dev"; \
	[ -z "$$missing" ] || { $(call apt_install,$$missing); }

# Only `make bench-dispatch` uses it, as a server of its own in a temporary folder.
redis:
	@PATH="$$PATH:/usr/sbin"; command -v redis-server >/dev/null || { $(call apt_install,redis-server); }

# What the tests crawl and compare with. Files are looked for, not package states: a machine may
# have the package without its documentation.
packages:
	@missing=; \
	PATH="$$PATH:/usr/sbin"; \
	command -v nginx >/dev/null || missing="$$missing nginx"; \
	command -v wget2 >/dev/null || missing="$$missing wget2"; \
	command -v tmux >/dev/null || missing="$$missing tmux"; \
	command -v mariadbd >/dev/null || command -v mysqld >/dev/null || \
	  missing="$$missing mariadb-server-core mariadb-client-core"; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	[ -e $(POSTGRES_MANUAL) ] || missing="$$missing postgresql-doc-15"; \
	[ -e $(PYTHON_MANUAL) ] || missing="$$missing python3-doc python3.11-doc"; \
	[ -z "$$missing" ] || { $(call apt_install,$$missing); }
	@tests/servers/install_consul.sh >/dev/null || [ "$${CI:-}" != true ]
