/* State from nvmlInit to nvmlShutdown: the GPUs that were found, their handles, the open device nodes. */
#ifndef GPUSIM_SESSION_H
#define GPUSIM_SESSION_H

#include "api.h"
#include "machine.h"

#include <stdbool.h>

/* A GPU or a MIG device, named by its UUID: handles stay good when the machine's description changes. */
struct handle {
    bool is_mig;
    unsigned position; /* NVML index of the GPU (of the parent for a MIG device) */
    char uuid[TEXT_SIZE];
};

nvml_return session_start(const struct machine *machine);
void session_stop(void);

unsigned session_gpu_count(void);
nvml_device session_gpu(unsigned position);

/* The handle of a MIG device of the GPU at `position`; NULL when there are no more. */
nvml_device session_mig(unsigned position, const char *uuid);
bool session_is_handle(nvml_device handle);

#endif
