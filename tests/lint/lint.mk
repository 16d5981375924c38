# SPDX-License-Identifier: Apache-2.0
# Lint, one stamp per file: only what changed is looked at again.
LINT_C := $(LIB_SRC) $(CMD_SRC) $(sort $(AGENT_C))
LINT_H := $(sort $(filter-out tests/%,$(shell find cmd engine providers bootstrap templates validate core -name '*.h')))
LINT_SH := $(sort $(shell find templates tests examples docs validate .ci -name '*.sh' 2>/dev/null) .ci/run)
L := $(B)/lint
LINT_FLAGS = -std=c11 -D_GNU_SOURCE -O1 $(INCLUDES) -DGP_VERSION='"$(VERSION)"' $(PKG_CFLAGS)

.PHONY: lint-all lint-analyze lint-tidy
lint-all: $(L)/format.ok lint-analyze lint-tidy check-headers $(L)/shellcheck.ok $(L)/includes.ok $(L)/subjects.ok \
  $(L)/pages.ok $(L)/circles.ok $(L)/check_ids.ok $(L)/fuzzed.ok check-abi check-size
	@echo "lint: clean"

# .clang-format decides how C and CUDA files look; 'make format' applies it.
FORMAT_FILES := $(sort $(shell find cmd core engine providers bootstrap templates validate tests -type f \
  \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.inc' \) ! -path '*/corpus/*'))
$(L)/format.ok: $(FORMAT_FILES) .clang-format
	@mkdir -p $(@D)
	@echo "  format $(words $(FORMAT_FILES)) files"
	@clang-format --dry-run -Werror $(FORMAT_FILES)
	@touch $@

# gcc's analyzer understands the cleanup attribute: it is the gate.
$(L)/analyze/validate/suite/models.ok: $(MODELS_INC)
$(L)/analyze/%.ok: %.c
	@mkdir -p $(@D)
	@echo "  analyze $<"
	@$(CC) $(LINT_FLAGS) -Wall -Wextra -fanalyzer -Werror -MMD -MP -MF $@.d -MT $@ -c $< -o $@.o
	@rm -f $@.o; touch $@
lint-analyze: $(LINT_C:%.c=$(L)/analyze/%.ok)

$(L)/tidy/%.ok: %.c .clang-tidy $(L)/analyze/%.ok
	@mkdir -p $(@D)
	@echo "  tidy $<"
	@clang-tidy --quiet --warnings-as-errors='*' $< -- $(LINT_FLAGS) -Wno-unknown-warning-option \
	  >$@.out 2>$@.err || { cat $@.out; grep -v 'warnings generated\|Suppressed\|Use -header' $@.err; exit 1; }
	@touch $@
lint-tidy: $(LINT_C:%.c=$(L)/tidy/%.ok)

# Every header compiles alone, after the one that every file includes first.
$(L)/header/%.ok: %
	@mkdir -p $(@D)
	@printf '#include "base/gp_base.h"\n#include "%s"\n' $< | \
	  $(CC) $(CFLAGS_ALL) $(PKG_CFLAGS) -Werror -Wno-unused-macros -MMD -MP -MF $@.d -MT $@ -x c -c - -o $@.o
	@rm -f $@.o; touch $@
check-headers: $(LINT_H:%=$(L)/header/%.ok)

$(L)/shellcheck.ok: $(LINT_SH)
	@mkdir -p $(@D)
	@echo "  shellcheck $(words $(LINT_SH)) files"
	@shellcheck -x -S warning $(LINT_SH)
	@touch $@

# The rules of CONTRIBUTING.md, and the test that each of them catches what it is for.
$(L)/includes.ok: $(FORMAT_FILES) $(sort $(shell find tests -name '*.py' -o -name '*.sh'))
	@mkdir -p $(@D)
	@echo "  includes"
	@$(PYTHON) tests/lint/includes.py
	@$(PYTHON) tests/lint/size.py --limits
	@$(PYTHON) tests/lint/test_includes.py 2>$@.err || { cat $@.err; exit 1; }
	@touch $@

# .ci/run checks the commits; here is the test of the check.
$(L)/subjects.ok: tests/lint/subjects.sh tests/lint/test_subjects.py
	@mkdir -p $(@D)
	@echo "  subjects"
	@$(PYTHON) tests/lint/test_subjects.py 2>$@.err || { cat $@.err; exit 1; }
	@touch $@

# Figures, files, links, verbs and options that README and docs/ name are those of the project.
.PHONY: pages
pages: $(L)/pages.ok
$(L)/pages.ok: README.md $(wildcard docs/*.md tests/unit/golden/help*.txt) validate/suite/gpu_models.tsv providers/provider.h \
  $(LINT_C) $(LINT_H) tests/lint/pages.py
	@mkdir -p $(@D)
	@echo "  pages"
	@$(PYTHON) tests/lint/pages.py
	@touch $@

# No two files of the engine call each other.
$(L)/circles.ok: $(filter $(B)/obj/engine/%,$(LIB_OBJ)) tests/lint/circles.py
	@mkdir -p $(@D)
	@echo "  circles"
	@$(PYTHON) tests/lint/circles.py $(B)/obj
	@touch $@

$(L)/check_ids.ok: $(LINT_C) $(LINT_H) $(wildcard validate/suite/rows/*.inc) tests/lint/check_ids.py \
  tests/lint/exit3.py
	@mkdir -p $(@D)
	@$(PYTHON) tests/lint/check_ids.py
	@$(PYTHON) tests/lint/exit3.py
	@touch $@

# Every decoder of foreign input that docs/security.md names has a fuzz target, or a reason.
$(L)/fuzzed.ok: docs/security.md $(wildcard tests/fuzz/fuzz_*.c) tests/lint/fuzzed.py
	@mkdir -p $(@D)
	@$(PYTHON) tests/lint/fuzzed.py
	@touch $@

-include $(LINT_C:%.c=$(L)/analyze/%.ok.d) $(LINT_H:%=$(L)/header/%.ok.d)
