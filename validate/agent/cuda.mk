# SPDX-License-Identifier: Apache-2.0
# gpuprov-agent-cuda: the shared files of agent.mk, the *_cuda.c files and the kernels. Built only when
# there is a CUDA toolkit (toolkits.sh searches for it); without one the program has no such
# agent and reports that.
export CUDA_HOMES CUDA_HOME
# before make 4.4 $(shell) does not see exported variables
CUDA_TOOLKITS := $(shell CUDA_HOMES='$(CUDA_HOMES)' CUDA_HOME='$(CUDA_HOME)' sh validate/agent/toolkits.sh)
CUDA_KERNELS := $(wildcard validate/agent/cuda/kernels/*)
AGENT_GLIBC := 2.28
AGENT_CUDA_SRC := $(AGENT_SRC) validate/agent/kind_cuda.c $(sort $(filter %_cuda.c,$(filter-out validate/agent/kind_%,$(AGENT_C))))
AGENT_CUDA_OBJ := $(sort $(AGENT_CUDA_SRC:%.c=$(B)/agent-obj/%.o)) $(B)/agent-obj/fatbins.o \
  $(B)/agent-obj/fatbin_data.o

# --- kernels on the CPU, for the stand-in driver of the tests ---
$(B)/agent-obj/kernels_host.o: validate/agent/cuda/kernels/all.cu $(CUDA_KERNELS) validate/agent/device/numeric.h
	@mkdir -p $(@D)
	$(Q)$(CC) -x c -std=c11 -O2 -fPIC -ffp-contract=off -fno-math-errno $(WARN) $(if $(DEV),-Werror) -c $< -o $@

ifneq ($(CUDA_TOOLKITS),)
$(B)/gen/nvrtc: validate/agent/tools/nvrtc.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra $(if $(DEV),-Werror) -Icore $< -ldl -o $@
$(B)/gen/cuda/fatbins.c: $(CUDA_KERNELS) validate/agent/device/numeric.h validate/agent/fatbins.sh \
  validate/agent/toolkits.sh $(B)/gen/nvrtc
	$(SAY) "  nvcc $(@D)"
	$(Q)sh validate/agent/fatbins.sh $(@D) validate/agent/cuda/kernels/all.cu $(B)/gen/nvrtc
$(B)/gen/cuda/fatbins.S: $(B)/gen/cuda/fatbins.c ;

$(B)/agent-obj/fatbins.o: $(B)/gen/cuda/fatbins.c
	@mkdir -p $(@D)
	$(Q)$(AGENT_CC) $(AGENT_CFLAGS) -c $< -o $@
$(B)/agent-obj/fatbin_data.o: $(B)/gen/cuda/fatbins.S
	@mkdir -p $(@D)
	$(Q)$(AGENT_CC) -c $< -o $@

$(B)/agent/gpuprov-agent-cuda: $(AGENT_CUDA_OBJ) validate/agent/oldglibc.sh
	@mkdir -p $(@D)
	$(SAY) "  link $@"
	$(Q)sh validate/agent/oldglibc.sh "$(AGENT_CC)" $(AGENT_GLIBC) $@ $(AGENT_CUDA_OBJ)

ifneq ($(AGENT_GZ),)
AGENT_GZ += $(B)/agent/gpuprov-agent-cuda.gz
endif

check-abi: $(B)/agent/gpuprov-agent-cuda
	@sh validate/agent/checkabi.sh $(AGENT_GLIBC) $<
# cuBLASLt's best rate, to compare with. Needs the toolkit's headers only; without them there is no comparison.
$(B)/tests/gpu/cublaslt_best: tests/gpu/cublaslt_best.c $(wildcard validate/agent/cuda/kernels/k*.h)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O2 $(WARN) $(patsubst %/bin/nvcc,-isystem %/include,$(filter %/bin/nvcc,$(CUDA_TOOLKITS))) -o $@ $< -ldl || \
	  echo "  no cublasLt.h: no comparison with every cuBLASLt algorithm" >&2
.PHONY: gpu-programs
gpu-programs: $(B)/agent/gpuprov-agent-cuda $(B)/tests/gpu/cublaslt_best
# On a machine with GPUs: the whole suite, then beside it the other installed tools; writes docs/gpu-results.
# Builds the CUDA agent only: gcc and nvcc are enough. LIMIT=600: stops after so many seconds; called again, it goes on.
gpu-check: gpu-programs
	@sh tests/gpu/check.sh $(if $(LIMIT),--limit $(LIMIT)) $(B)/agent/gpuprov-agent-cuda docs/gpu-results
else
gpu-check:
	@echo "gpu-check: no CUDA toolkit, so there is no gpuprov-agent-cuda to run" >&2; exit 1
check-abi:
	@echo "check-abi: no CUDA toolkit, so there is no gpuprov-agent-cuda to check"
endif
# Limits of the compressed programs, in bytes: they are sent to every node.
.PHONY: check-size
check-size: $(AGENT_GZ)
	@sh validate/agent/checksize.sh 1000000 $(B)/agent/gpuprov-agent.gz \
	  $(if $(CUDA_TOOLKITS),3000000 $(B)/agent/gpuprov-agent-cuda.gz)
-include $(filter %.d,$(AGENT_CUDA_OBJ:.o=.d))
