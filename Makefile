# Every target sets up what it needs in .venv by itself, and finds it there the second time.
PYTHON ?= python3
BIN := .venv/bin
PYTEST_ARGS ?=
# Tests at a time: most of what they do is waiting for programs, so that three keep two cores busy.
AT_ONCE ?= 3

.PHONY: help demo test check format bench soak lock pictures proto wheel clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | sort | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

demo:  ## a controller, two workers and a few real jobs in a temporary folder, watched in the console
	@$(PYTHON) requirements/install.py controller
	@exec $(BIN)/iris demo

test: check  ## everything that must hold: lint, types, floors, tests
	$(BIN)/pytest -n $(AT_ONCE) --dist worksteal $(PYTEST_ARGS)

check:  ## ruff, mypy --strict and the floors of the house
	@$(PYTHON) requirements/install.py dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m iris_core.wire.generate --check

format:  ## let ruff write the code as it wants it
	@$(PYTHON) requirements/install.py dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:  ## the figures of docs/performance.md, beside their yardsticks
	@$(PYTHON) requirements/install.py dev
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

soak:  ## the fault tests at full size
	@$(PYTHON) requirements/install.py dev
	IRIS_SOAK=1 $(BIN)/pytest -m soak --timeout=7200 $(PYTEST_ARGS)

lock:  ## choose new versions for requirements/*.txt (needs uv)
	sh requirements/lock.sh

pictures:  ## every screen of the console as docs/pictures/*.svg
	@$(PYTHON) requirements/install.py dev
	$(BIN)/python -m benchmarks.pictures $(SCREENS)

proto:  ## generate the wire code from the protos
	@$(PYTHON) requirements/install.py dev
	$(BIN)/python -m iris_core.wire.generate

wheel:  ## dist/*.whl
	@$(PYTHON) requirements/install.py dev
	mkdir -p iris_core/_shipped; git log -1 --format=%cs > iris_core/_shipped/revision || true
	$(BIN)/hatchling build -t wheel; status=$$?; rm -r iris_core/_shipped; exit $$status

clean:  ## forget .venv, caches and dist
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
