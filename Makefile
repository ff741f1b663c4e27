PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test lint bench docs clean

help:
	@echo "make demo    predict and train a network on the digits, and plot both"
	@echo "make test    lint, type check and test"
	@echo "make lint    lint and type check only"
	@echo "make bench   run the benchmarks"
	@echo "make docs    build the documentation into site"
	@echo "make setup   create $(VENV) only (the others do it when needed)"
	@echo "make clean   remove what the commands above wrote, except $(VENV)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (about a minute)"
	@rm -f $@
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/lazyrich compare studies/digits.toml --plot digits.png --output digits.nc
	@echo "wrote digits.png (the figure) and digits.nc (the curves)"

# Two processes with one BLAS thread each. pytest runs last, so that its closing line is the last line.
test: lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY)
	$(BIN)/python -m benchmarks.run

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet
	@echo "wrote site/index.html"

clean:
	rm -rf build dist results site .pytest_cache .ruff_cache .hypothesis digits.png digits.nc
	find src tests benchmarks -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
