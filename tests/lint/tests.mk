# SPDX-License-Identifier: Apache-2.0
# Lint of the tests themselves: ruff for all Python (ruff.toml). clang-tidy for their C, one stamp per file, is a
# target of its own (lint-test-c): not all of its findings are fixed.
LINT_TEST_C := $(sort $(wildcard tests/unit/*/*.c tests/contract/*.c tests/drivers/*.c tests/fuzz/*.c))
LINT_PY := $(sort $(shell find tests -name '*.py'))
TEST_LINT_FLAGS = $(LINT_FLAGS) -Itests/unit -Itests/contract

.PHONY: lint-test-c
lint-all: $(L)/ruff.ok
lint-test-c: $(LINT_TEST_C:%.c=$(L)/tidy/%.ok)

$(L)/ruff.ok: $(LINT_PY) ruff.toml
	@mkdir -p $(@D)
	@echo "  ruff $(words $(LINT_PY)) files"
	@$(PYTHON) -m ruff check --quiet --no-cache $(LINT_PY)
	@touch $@

$(LINT_TEST_C:%.c=$(L)/tidy/%.ok): $(L)/tidy/%.ok: %.c .clang-tidy
	@mkdir -p $(@D)
	@echo "  tidy $<"
	@clang-tidy --quiet --warnings-as-errors='*' $< -- $(TEST_LINT_FLAGS) -Wno-unknown-warning-option \
	  >$@.out 2>$@.err || { cat $@.out; grep -v 'warnings generated\|Suppressed\|Use -header' $@.err; exit 1; }
	@touch $@
