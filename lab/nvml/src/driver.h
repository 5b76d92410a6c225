/* The kernel module as the library sees it: versions, and whether they match. */
#ifndef GPUSIM_DRIVER_H
#define GPUSIM_DRIVER_H

#include "api.h"
#include "machine.h"

#include <stdbool.h>

/* The driver version: what the machine says, else the suffix of the library's own file name. */
const char *driver_version(const struct machine *machine);

/* Whether the driver in use is one that the failure is of. */
bool driver_fails(const struct machine *machine, const struct failure *failure);

/* CUDA version as NVML counts it (12040 = 12.4): what the machine says, else by driver branch. */
unsigned driver_cuda_version(const struct machine *machine);

/* A number that a node's module has from its load to its unload, 0 where there is no simulated module. */
uint64_t driver_load(const struct machine *machine);

/* NVML_SUCCESS, DRIVER_NOT_LOADED, or LIB_RM_VERSION_MISMATCH. */
nvml_return driver_check(const struct machine *machine);

#endif
