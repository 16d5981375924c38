/* SPDX-License-Identifier: Apache-2.0 */
/* The structs and numbers that the agent declares by hand for NVML are those of its library: the sizes
 * of API version 13 are written down here, and where a toolkit's nvml.h is installed each one is
 * compared with it. */
#include "base/gp_base.h"

#include "validate/agent/cuda/nvml_api_cuda.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#if defined(__has_include)
#if __has_include(<nvml.h>)
#define HAVE_NVML_H 1
#include <nvml.h>
#endif
#endif

static void test_sizes(void **state) {
    (void)state;
    assert_int_equal(sizeof(struct nvml_pci), 68);
    assert_int_equal(offsetof(struct nvml_pci, pci_device), 28);
    assert_int_equal(sizeof(struct nvml_memory), 24);
    assert_int_equal(sizeof(struct nvml_process_info), 24);
    assert_int_equal(sizeof(struct nvml_field), 40);
    assert_int_equal(offsetof(struct nvml_field, rc), 28);
    assert_int_equal(sizeof(struct nvml_fabric), 36);
    assert_int_equal(offsetof(struct nvml_fabric, state), 28);
    assert_int_equal(offsetof(struct nvml_fabric, health), 32);
    assert_int_equal(sizeof(struct nvml_sram), 104);
    assert_int_equal(offsetof(struct nvml_sram, threshold_exceeded), 96);
    assert_int_equal(sizeof(struct nvml_event), 32);
    assert_int_equal(NVML_FABRIC_V2, 0x02000024);
    assert_int_equal(NVML_SRAM_V1, 0x01000068);
}

#ifdef HAVE_NVML_H
static void test_against_the_header(void **state) {
    (void)state;
    assert_int_equal(sizeof(struct nvml_pci), sizeof(nvmlPciInfo_t));
    assert_int_equal(offsetof(struct nvml_pci, pci_device), offsetof(nvmlPciInfo_t, pciDeviceId));
    assert_int_equal(sizeof(struct nvml_memory), sizeof(nvmlMemory_t));
    assert_int_equal(sizeof(struct nvml_process_info), sizeof(nvmlProcessInfo_t));
    assert_int_equal(sizeof(struct nvml_field), sizeof(nvmlFieldValue_t));
    assert_int_equal(offsetof(struct nvml_field, value), offsetof(nvmlFieldValue_t, value));
    assert_int_equal(NVML_FABRIC_V2, nvmlGpuFabricInfo_v2);
    assert_int_equal(offsetof(struct nvml_fabric, state), offsetof(nvmlGpuFabricInfo_v2_t, state));
    assert_int_equal(NVML_SRAM_V1, nvmlEccSramErrorStatus_v1);
    assert_int_equal(offsetof(struct nvml_sram, threshold_exceeded),
                     offsetof(nvmlEccSramErrorStatus_t, bThresholdExceeded));
    assert_int_equal(sizeof(struct nvml_event), sizeof(nvmlEventData_t));
    assert_int_equal(NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
    assert_int_equal(NVML_FI_RECOVERY_ACTION, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
    assert_int_equal(NVML_FI_LINK_COUNT, NVML_FI_DEV_NVLINK_LINK_COUNT);
    assert_int_equal(NVML_FI_MEMORY_TEMP, NVML_FI_DEV_MEMORY_TEMP);
    assert_int_equal(NVML_FI_PCIE_FATAL, NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR);
    assert_int_equal(NVML_FI_PCIE_NONFATAL, NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR);
    assert_int_equal(NVML_FI_LINK_MALFORMED, NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS);
    assert_int_equal(NVML_FI_LINK_OVERRUN, NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS);
    assert_int_equal(NVML_FI_LINK_RECEIVE, NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS);
    assert_int_equal(NVML_FI_LINK_INTEGRITY, NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS);
    assert_int_equal(NVML_FI_LINK_LOST, NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS);
    assert_int_equal(NVML_FI_SLOW_POWER, NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP);
    assert_int_equal(NVML_FI_SLOW_SW_THERMAL, NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN);
    assert_int_equal(NVML_FI_SLOW_HW_THERMAL, NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN);
    assert_int_equal(NVML_FI_SLOW_HW_BRAKE, NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
#ifdef HAVE_NVML_H
        cmocka_unit_test(test_against_the_header),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
