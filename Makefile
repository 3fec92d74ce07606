# Two commands: `make run` (the main job) and `make test`. Both build .venv where it is missing.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
LOCKS := requirements/lock.txt requirements/data.txt

.PHONY: run test check lock gpu bench studies clean

run: $(STAMP)
	$(BIN)/python experiments/virtual_shakespeare.py --preset=quick --output_dir=runs/virtual_shakespeare

test: $(STAMP) check
	$(BIN)/python -m pytest -n 2 tests

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/virtual.py
	$(BIN)/python benchmarks/apple.py

# Tables and figures of VIRTUAL's studies on digits; half an hour.
studies: $(STAMP)
	$(BIN)/python experiments/virtual_studies.py --preset=small --output_dir=runs/virtual_studies

# CUDA libraries for the same TensorFlow.
gpu: $(STAMP)
	$(BIN)/python -m pip install --no-deps --require-hashes -r requirements/gpu.txt

$(STAMP): $(LOCKS) setup.cfg setup.py
	sh requirements/make_venv.sh $(VENV)
	touch $@

# Remakes the locks; needs uv. See BUILD.md.
lock:
	sh requirements/lock.sh

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
