# SPDX-License-Identifier: Apache-2.0
# Tests. unit: tests/unit/*/test_*.c, one cmocka program each. contract: tests/contract/test_*.c, the same,
# against every implementation of a seam. fuzz: tests/fuzz/fuzz_*.c, each defines
# LLVMFuzzerTestOneInput; the corpus is replayed under gcc, `make fuzz` searches under clang. e2e:
# pytest with the built program.
UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c))
UNIT_BIN := $(UNIT_SRC:%.c=$(B)/%)
CONTRACT_SRC := $(sort $(wildcard tests/contract/test_*.c))
CONTRACT_BIN := $(CONTRACT_SRC:%.c=$(B)/%)
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BIN := $(FUZZ_SRC:%.c=$(B)/%)
FUZZ_SECONDS ?= 20
PYTEST_ARGS ?=
# Most tests wait; tests/e2e/scheduling.py keeps those that compute to one per core.
E2E_JOBS ?= $(shell expr 3 '*' $$(nproc))
# --sample: a part of the matrices (make test); with --rest=6 also a sixth of the rest (make test-ci); empty: all
SAMPLE ?=
PYTEST = $(PYTHON) -m pytest -n $(E2E_JOBS) --dist loadfile --no-loadscope-reorder $(SAMPLE) $(PYTEST_ARGS)
PYTHON := $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

# Under a sanitizer the first finding ends the program. TSan wants a known memory layout.
TEST_ENV = GPUPROV_BIN=$(abspath $(B)/gpuprov) B=$(abspath $(B)) PATH="$(abspath .venv/bin):$$PATH" \
  ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:exitcode=99:suppressions=$(abspath tests/tsan.supp)
TEST_RUN = $(if $(findstring thread,$(SAN)),setarch $(shell uname -m) -R)

$(B)/tests/unit/% $(B)/tests/contract/%: TEST_INC = -Itests/unit -Itests/contract
$(B)/tests/unit/%: tests/unit/%.c $(LIB) $(CMD_LIB) | $(if $(HAVE_DEPS),,no-deps)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_INC) $(PKG_CFLAGS) -MMD -MP $< $(LDFLAGS_ALL) $(CMD_LIB) $(LIB) $(PKG_LIBS) -lcmocka -o $@
$(B)/tests/contract/%: tests/contract/%.c $(LIB) | $(if $(HAVE_DEPS),,no-deps)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_INC) $(PKG_CFLAGS) -MMD -MP $< $(LDFLAGS_ALL) $(LIB) $(PKG_LIBS) -lcmocka -o $@

# replay_main.c runs a target over its corpus where there is no libFuzzer.
FUZZ_MAIN ?= $(B)/obj/tests/fuzz/replay_main.o
$(B)/tests/fuzz/%: tests/fuzz/%.c $(LIB) $(FUZZ_MAIN)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(PKG_CFLAGS) -MMD -MP $< $(LDFLAGS_ALL) $(FUZZ_MAIN) $(FUZZ_LINK) $(LIB) $(PKG_LIBS) -o $@

# Small programs around the library that tests start: tests/drivers/NAME.c to B/tests/drivers/NAME.
DRIVER_SRC := $(sort $(wildcard tests/drivers/*.c))
DRIVER_BIN := $(DRIVER_SRC:%.c=$(B)/%)
$(B)/tests/drivers/%: tests/drivers/%.c $(LIB) | $(if $(HAVE_DEPS),,no-deps)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(PKG_CFLAGS) -MMD -MP $< $(LDFLAGS_ALL) $(LIB) $(PKG_LIBS) -o $@
.PHONY: drivers
drivers: $(DRIVER_BIN)

.PHONY: test-programs fuzz-programs unit contract fuzz-replay e2e
test-programs: $(UNIT_BIN) $(CONTRACT_BIN) $(FUZZ_BIN) $(DRIVER_BIN) agent-faults
fuzz-programs: $(FUZZ_BIN)

# Each line names the runner's own closing words; the first suite that fails ends the run.
check: unit contract fuzz-replay e2e
unit: $(UNIT_BIN)
	@$(TEST_ENV) $(TEST_RUN) $(PYTHON) tests/run.py unit $(UNIT_BIN)
# test_provider and test_provider_faults need a provider to talk to: tests/e2e/nodes/test_provider_contract.py starts it.
contract: $(CONTRACT_BIN) all unit
	@$(TEST_ENV) $(TEST_RUN) $(PYTHON) tests/run.py contract $(filter-out %/test_provider %/test_provider_faults,$(CONTRACT_BIN))
fuzz-replay: $(FUZZ_BIN) contract
	@$(TEST_ENV) $(TEST_RUN) $(PYTHON) tests/run.py fuzz $(FUZZ_BIN)
e2e: all fuzz-replay
	@$(TEST_ENV) $(TEST_RUN) $(PYTEST) tests/e2e
# the same without what comes before it
e2e-only: all
	@$(TEST_ENV) $(TEST_RUN) $(PYTEST) tests/e2e
.PHONY: e2e-only

# A real OpenStack with fake hypervisors, for trying by hand; ends with Ctrl-C. Needs root.
.PHONY: openstack-lab
openstack-lab:
	@$(DEPS) test
	@$(PYTHON) tests/openstack/openstack_lab.py

# clang's libFuzzer: the whole library is built with its instrumentation, in a folder of its own.
FUZZ_B ?= build-fuzz
fuzz:
	@$(SUBMAKE) B=$(FUZZ_B) CC=clang AGENT_CC=gcc WARN= SAN= FUZZ_MAIN= FUZZ_LINK=-fsanitize=fuzzer \
	  CFLAGS='-fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer' LDFLAGS=-fsanitize=address fuzz-programs
	@sh tests/fuzz/search.sh $(FUZZ_B) $(FUZZ_SECONDS) $(FUZZ_SRC)

-include $(UNIT_BIN:=.d) $(CONTRACT_BIN:=.d) $(FUZZ_BIN:=.d) $(DRIVER_BIN:=.d)
include tests/standins/standins.mk

# Medians and ratios, side by side; writes docs/benchmarks.md. BENCH: words for tests/bench/run.py
bench:
	@$(DEPS) build test bench
	@$(SUBMAKE) all drivers
	@$(TEST_ENV) $(PYTHON) tests/bench/run.py $(BENCH)
