# SPDX-License-Identifier: Apache-2.0
# make            build/gpuprov
# make demo       install what is missing, build, run the local example end to end
# make test       install what is missing, build, run every test, of large matrices a sample
# make test-ci    the same and a sixteenth of what it leaves out
# make test-all   every test
# make lint       formatting, -fanalyzer, clang-tidy, shellcheck, ruff, include rules
# make format     brings every C and CUDA file into the form of .clang-format
# make bench      medians and ratios, side by side; writes docs/benchmarks.md
# make fuzz       libFuzzer on every target, FUZZ_SECONDS each (clang)
# DEV=1 (warnings are errors), SAN=address,undefined or SAN=thread, B=folder (default build)
# GPUPROV_SKIP_DEPS=1: demo, test and lint install nothing
SAN ?=
comma := ,
B ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
VERSION := 0.1.0
PKGS := libcurl libssh2 jansson yaml-0.1 expat sqlite3 libcrypto zlib

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all clean install uninstall deps demo test test-ci test-all check lint bench check-abi check-headers fuzz \
  format gpu-check docs no-deps

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wmissing-prototypes \
  -Wstrict-prototypes -Wvla -Wformat=2 -Wundef -Wcast-qual -Wnull-dereference \
  -Wjump-misses-init -Wduplicated-cond -Wlogical-op -fno-common
OPT ?= -O2 -g
HARD := -fvisibility=hidden -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
INCLUDES = -Icore -I. -I$(B) -I$(B)/gen
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE $(OPT) $(HARD) $(WARN) $(if $(DEV),-Werror) $(INCLUDES) \
  -DGP_VERSION='"$(VERSION)"' $(CFLAGS)
LDFLAGS_ALL = -pie -Wl,-z,relro,-z,now $(LDFLAGS)
ifneq ($(SAN),)
  CFLAGS_ALL += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer -U_FORTIFY_SOURCE
  LDFLAGS_ALL += -fsanitize=$(SAN)
endif
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lpthread -lm
HAVE_DEPS := $(shell pkg-config --exists $(PKGS) 2>/dev/null && echo yes)

# V=1 shows whole commands.
Q := $(if $(V),,@)
SAY = $(if $(V),@:,@echo)

# As many compilers as there are cores, unless -j says otherwise.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
DEPS = $(if $(GPUPROV_SKIP_DEPS),true,sh tests/deps.sh)

# --- the program: every .c below these folders, so a new file needs no line here ---
LIB_SRC := $(sort $(wildcard core/*/*.c engine/*.c engine/*/*.c engine/*/*/*.c providers/*.c providers/*/*.c \
  providers/*/*/*.c bootstrap/*.c templates/*.c validate/*.c validate/suite/*.c))
CMD_SRC := $(sort $(wildcard cmd/*.c cmd/*/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/obj/%.o)
CMD_OBJ := $(CMD_SRC:%.c=$(B)/obj/%.o)
LIB := $(B)/libgpuprov.a

all: $(B)/gpuprov

no-deps:
	@echo "gpuprov: libraries to build with are missing (of: $(PKGS)): run 'make deps'" >&2; exit 1

# the GPU model table, as C
MODELS_INC := $(B)/gen/gpu_models.inc
$(MODELS_INC): validate/suite/gpu_models.tsv validate/suite/gpu_models.awk
	@mkdir -p $(@D)
	$(Q)LC_ALL=C awk -f validate/suite/gpu_models.awk $< >$@.new && mv $@.new $@

$(B)/obj/validate/suite/models.o: $(MODELS_INC)
$(B)/obj/%.o: %.c | $(if $(HAVE_DEPS),,no-deps)
	@mkdir -p $(@D)
	$(SAY) "  cc $<"
	$(Q)$(CC) $(CFLAGS_ALL) $(PKG_CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ) $(B)/obj/embed.o
	@rm -f $@
	$(Q)ar rcs $@ $^

# cmd without main, for unit tests
CMD_LIB := $(B)/libcmd.a
$(CMD_LIB): $(filter-out %/main.o,$(CMD_OBJ))
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/gpuprov: $(CMD_OBJ) $(LIB)
	$(SAY) "  link $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $(CMD_OBJ) $(LIB) $(PKG_LIBS) -o $@

# --- what is embedded: templates and the agents ---
TEMPLATE_FILES := $(sort $(shell find templates -type f ! -name '*.c' ! -name '*.h' ! -name '*.mk'))
include validate/agent/agent.mk
include templates/embed.mk
include tests/tests.mk
include tests/lint/lint.mk
include tests/lint/tests.mk

# --- what README names ---
deps:
	@sh tests/deps.sh build test lint

demo:
	@sh tests/demo.sh --possible
	@$(DEPS) build
	@$(SUBMAKE) all
	@sh tests/demo.sh $(B)/gpuprov

# hygiene.py fails a run that leaves anything on the machine
test: SAMPLE = --sample
test-ci: SAMPLE = --sample --rest=16
test test-ci test-all:
	@$(DEPS) build test
	@$(SUBMAKE) all test-programs
	@python3 tests/hygiene.py $(MAKE) --no-print-directory check SAMPLE='$(SAMPLE)'

lint:
	@$(DEPS) build test lint
	@$(SUBMAKE) lint-all

# --- pages made from the program's own tables ---
docs: all
	$(B)/gpuprov schema --markdown >docs/spec.md
	$(B)/gpuprov schema --hosts --markdown >docs/hosts.md
	$(B)/gpuprov checks --markdown >docs/checks.md
	$(B)/gpuprov checks --models >docs/gpu-models.md
	$(B)/gpuprov checks --software >docs/software.md

format:
	@clang-format -i $(FORMAT_FILES)

# The program prints its manual pages, completions and schemas itself.
SHARE = $(DESTDIR)$(PREFIX)/share
INSTALLED = man/man1/gpuprov.1 man/man5/gpuprov.yaml.5 bash-completion/completions/gpuprov \
  zsh/site-functions/_gpuprov fish/vendor_completions.d/gpuprov.fish gpuprov/gpuprov.schema.json \
  gpuprov/report.schema.json
PRINTS_man/man1/gpuprov.1 = help --man
PRINTS_man/man5/gpuprov.yaml.5 = schema --man
PRINTS_bash-completion/completions/gpuprov = completion bash
PRINTS_zsh/site-functions/_gpuprov = completion zsh
PRINTS_fish/vendor_completions.d/gpuprov.fish = completion fish
PRINTS_gpuprov/gpuprov.schema.json = schema
PRINTS_gpuprov/report.schema.json = schema --report
install: all
	install -D -m 0755 $(B)/gpuprov $(DESTDIR)$(PREFIX)/bin/gpuprov
	$(foreach f,$(INSTALLED),install -D -m 0644 /dev/null $(SHARE)/$(f) && \
	  $(B)/gpuprov $(PRINTS_$(f)) >$(SHARE)/$(f) &&) true
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/gpuprov $(addprefix $(SHARE)/,$(INSTALLED))
clean:
	rm -rf build build-*

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d)
