# SPDX-License-Identifier: Apache-2.0
# Lint of the tests themselves: ruff for all Python (ruff.toml); clang-tidy for all C, one stamp per file, except
# libnccl_ops.c (its _Float16 is gcc's) and tests/gpu (needs a CUDA toolkit's headers).
LINT_TEST_H := $(sort $(shell find tests -name '*.h'))
LINT_TEST_C := $(filter-out %/libnccl_ops.c tests/gpu/%,$(sort $(shell find tests -name '*.c')))
LINT_PY := $(sort $(shell find tests -name '*.py'))
TEST_LINT_FLAGS = $(LINT_FLAGS) -Itests/unit -Itests/contract -DSTANDIN_VERSION=130100

.PHONY: lint-test-c
lint-all: $(L)/ruff.ok lint-test-c
lint-test-c: $(LINT_TEST_C:%.c=$(L)/tidy/%.ok)

$(L)/ruff.ok: $(LINT_PY) ruff.toml
	@mkdir -p $(@D)
	@echo "  ruff $(words $(LINT_PY)) files"
	@$(PYTHON) -m ruff check --quiet --no-cache $(LINT_PY)
	@touch $@

$(LINT_TEST_C:%.c=$(L)/tidy/%.ok): $(L)/tidy/%.ok: %.c .clang-tidy tests/.clang-tidy $(LINT_TEST_H)
	@mkdir -p $(@D)
	@echo "  tidy $<"
	@clang-tidy --quiet --warnings-as-errors='*' $< -- $(TEST_LINT_FLAGS) -Wno-unknown-warning-option \
	  >$@.out 2>$@.err || { cat $@.out; grep -v 'warnings generated\|Suppressed\|Use -header' $@.err; exit 1; }
	@touch $@
