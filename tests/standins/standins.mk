# SPDX-License-Identifier: Apache-2.0
# Stand-ins for NVIDIA's libraries: what the CUDA agent is tested against where no GPU is.
STANDIN_CFLAGS = -std=c11 -D_GNU_SOURCE -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra \
  $(if $(DEV),-Werror) -I.
STANDIN_LIBS := $(B)/tests/standin/libcuda.so.1 $(B)/tests/standin/libnvidia-ml.so.1 \
  $(B)/tests/standin/libcublasLt.so.13 $(B)/tests/standin-12/libcublasLt.so.12 \
  $(B)/tests/standin/libnccl.so.2

$(B)/agent-obj/kernels_test.o: tests/standins/kernels_test.cu validate/agent/cuda/kernels/kportable.h
	@mkdir -p $(@D)
	$(Q)$(CC) -x c -std=c11 -O2 -fPIC -ffp-contract=off $(WARN) $(if $(DEV),-Werror) -I. -c $< -o $@
# Its soname is how the other stand-ins find the one that is loaded, for its clock.
$(B)/tests/standin/libcuda.so.1: $(sort $(wildcard tests/standins/libcuda*.c tests/standins/kernels_*.c)) \
  $(wildcard tests/standins/*.h validate/agent/cuda/kernels/*.h) $(B)/agent-obj/kernels_host.o \
  $(B)/agent-obj/kernels_test.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(STANDIN_CFLAGS) -shared -Wl,-z,defs -Wl,-soname,libcuda.so.1 $(filter %.c %.o,$^) -lm -o $@
# The same of an old driver: most functions are not there at all.
STANDIN_LIBS += $(B)/tests/standin-old/libnvidia-ml.so.1
$(B)/tests/standin-old/libnvidia-ml.so.1: tests/standins/libnvidia-ml.c tests/standins/standin.h \
  tests/standins/libnvidia-ml-old.map
	@mkdir -p $(@D)
	$(Q)$(CC) $(STANDIN_CFLAGS) -shared -Wl,--version-script=tests/standins/libnvidia-ml-old.map $< -o $@
$(B)/tests/standin/libnvidia-ml.so.1: tests/standins/libnvidia-ml.c tests/standins/standin.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(STANDIN_CFLAGS) -shared -Wl,-z,defs $< -o $@
$(B)/tests/standin/libnccl.so.2: $(wildcard tests/standins/libnccl*.c) tests/standins/libnccl.h \
  tests/standins/standin_gpu.h tests/standins/standin.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(STANDIN_CFLAGS) -shared -Wl,-z,defs $(filter %.c,$^) -lpthread -ldl -lm -o $@

# Version 12 lies in a folder of its own, because 13 is looked for first.
$(B)/tests/standin/libcublasLt.so.13: STANDIN_VERSION = 130100
$(B)/tests/standin-12/libcublasLt.so.12: STANDIN_VERSION = 120908
$(B)/tests/standin/libcublasLt.so.13 $(B)/tests/standin-12/libcublasLt.so.12: tests/standins/libcublasLt.c \
  $(wildcard tests/standins/*.h) validate/agent/device/numeric.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(STANDIN_CFLAGS) -Icore -ffp-contract=off -O3 -DSTANDIN_VERSION=$(STANDIN_VERSION) -shared \
	  -Wl,-z,defs $< -ldl -o $@

.PHONY: standins
standins: $(STANDIN_LIBS)
test-programs unit e2e e2e-only: standins
ifneq ($(CUDA_TOOLKITS),)
test-programs unit e2e e2e-only: $(B)/agent/gpuprov-agent-cuda $(B)/tests/gpu/cublaslt_best
endif

# The device seam's suites link the CUDA agent's objects (without its main and its table of checks)
# instead of the library.
DEVICE_TEST_OBJ := $(filter-out %/agent/main.o %/agent/kind_cuda.o \
  $(if $(CUDA_TOOLKITS),,%/fatbins.o %/fatbin_data.o),$(AGENT_CUDA_OBJ))
$(B)/tests/contract/test_device $(B)/tests/contract/test_gemm $(B)/tests/contract/test_train_kernels \
$(B)/tests/contract/test_train_gang: \
  $(B)/tests/contract/%: tests/contract/%.c $(DEVICE_TEST_OBJ) | $(STANDIN_LIBS)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(AGENT_CC) $(AGENT_CFLAGS) $(if $(CUDA_TOOLKITS),,-DNO_FATBINS) -no-pie -Wl,--gc-sections $< \
	  $(DEVICE_TEST_OBJ) \
	  -lcmocka -ldl -lpthread -lm -o $@
# The same for what needs no driver: the static agent's objects.
AGENT_TEST_OBJ := $(filter-out %/agent/main.o,$(AGENT_HOST_OBJ))
$(B)/tests/unit/agent/test_train_parts: tests/unit/agent/test_train_parts.c $(AGENT_TEST_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(AGENT_CC) $(AGENT_CFLAGS) -no-pie -Wl,--gc-sections $< $(AGENT_TEST_OBJ) -lcmocka -lpthread -lm -o $@
$(B)/tests/drivers/gang_stops: tests/drivers/gang_stops.c $(AGENT_TEST_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  test $@"
	$(Q)$(AGENT_CC) $(AGENT_CFLAGS) -no-pie -Wl,--gc-sections $< $(AGENT_TEST_OBJ) -lpthread -lm -o $@
