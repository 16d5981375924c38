# SPDX-License-Identifier: Apache-2.0
# The node's two programs. AGENT_GZ: the programs that were built, compressed, for embedding.
# They are compiled apart from the controller: no sanitizer, no contraction of a*b+c (numbers must be
# equal on all ranks), static and without position independence, core/base only. No jumps from one condition to
# another: they keep loops of exp and tanh from being done eight at a time.
AGENT_CC ?= $(CC)
AGENT_CFLAGS = -std=c11 -D_GNU_SOURCE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math \
  -fno-thread-jumps -fno-pie \
  -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=2 $(WARN) \
  $(if $(DEV),-Werror) -Icore -I. -I$(B) -DGP_VERSION='"$(VERSION)"'
AGENT_BASE := core/base/alloc.c core/base/error.c core/base/str.c core/base/clock.c core/base/fs.c \
  core/base/stats.c core/base/verdict.c $(sort $(wildcard core/tree/*.c))
# its rooms
AGENT_C := $(filter-out validate/agent/tools/%,$(wildcard validate/agent/*.c validate/agent/*/*.c validate/agent/*/*/*.c))
# the files of both programs; kind_host.c and *_cuda.c belong to one of them
AGENT_SRC := $(AGENT_BASE) validate/suite/checks.c validate/suite/limits.c validate/suite/models.c \
  validate/suite/peers.c validate/suite/pick.c \
  $(sort $(filter-out validate/agent/kind_%.c %_cuda.c,$(AGENT_C)))
AGENT_HOST_SRC := $(AGENT_SRC) validate/agent/kind_host.c
AGENT_HOST_OBJ := $(AGENT_HOST_SRC:%.c=$(B)/agent-obj/%.o)

$(B)/agent-obj/validate/suite/models.o $(B)/agent-faults-obj/validate/suite/models.o: $(MODELS_INC)
$(B)/agent-obj/%.o: %.c validate/agent/agent.mk
	@mkdir -p $(@D)
	$(SAY) "  cc $<, for nodes"
	$(Q)$(AGENT_CC) $(AGENT_CFLAGS) -MMD -MP -c $< -o $@

# They contain those programs.
FRAMEWORK_O := $(patsubst %.c,%.o,$(wildcard validate/agent/checks/framework/*.c))
$(FRAMEWORK_O:%=$(B)/agent-obj/%) $(FRAMEWORK_O:%=$(B)/agent-faults-obj/%): \
  $(wildcard validate/agent/checks/framework/*.py)

$(B)/agent/gpuprov-agent: $(AGENT_HOST_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  link $@"
	$(Q)$(AGENT_CC) -static -no-pie -Wl,--gc-sections -Wl,-z,relro,-z,noexecstack -s $^ -o $@

$(B)/agent/%.gz: $(B)/agent/%
	$(Q)gzip -9 -n -c $< >$@

AGENT_GZ := $(B)/agent/gpuprov-agent.gz

# Test-only: the same program with faults on request. Never embedded, never installed.
AGENT_FAULTS_OBJ := $(AGENT_HOST_SRC:%.c=$(B)/agent-faults-obj/%.o)
$(B)/agent-faults-obj/%.o: %.c validate/agent/agent.mk
	@mkdir -p $(@D)
	$(SAY) "  cc $<, with faults"
	$(Q)$(AGENT_CC) $(AGENT_CFLAGS) -DGPUPROV_FAULTS -MMD -MP -c $< -o $@
$(B)/tests/gpuprov-agent-faults: $(AGENT_FAULTS_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  link $@"
	$(Q)$(AGENT_CC) -static -no-pie -Wl,--gc-sections $^ -o $@

.PHONY: agent agent-faults agent-sources
agent-sources:
	@echo $(AGENT_HOST_SRC)
agent: $(AGENT_GZ)
agent-faults: $(B)/tests/gpuprov-agent-faults
-include $(AGENT_HOST_OBJ:.o=.d) $(AGENT_FAULTS_OBJ:.o=.d)
include validate/agent/cuda.mk
