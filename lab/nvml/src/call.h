/* The frame of every NVML function: lock, current machine, injected failures, the device that is meant, cost.
 *
 *     nvml_return nvmlDeviceGetX(nvml_device device, unsigned *x)
 *     {
 *         CALL(call_gpu(__func__, device));
 *         REQUIRE(x);
 *         *x = call.gpu->x;
 *         return NVML_SUCCESS;
 *     }
 */
#ifndef GPUSIM_CALL_H
#define GPUSIM_CALL_H

#include "api.h"
#include "machine.h"

struct call {
    nvml_return status;
    const struct machine *machine;
    const struct gpu *gpu; /* of call_gpu and call_device */
    const struct mig *mig; /* of call_device, when the handle is that of a MIG device */
    unsigned cost_us;
};

struct call call_system(const char *function);
struct call call_gpu(const char *function, nvml_device device);    /* NOT_SUPPORTED for a MIG device */
struct call call_device(const char *function, nvml_device device); /* takes both */
void call_end(struct call *call);

/* For nvmlInit and nvmlShutdown, which frame themselves. */
nvml_return call_init(const char *function);
nvml_return call_shutdown(void);

/* The machine's data for a handle; NULL when it is gone. */
const struct gpu *call_find_gpu(const struct machine *machine, nvml_device device);
const struct mig *call_find_mig(const struct gpu *gpu, const char *uuid);

/* The code that `function` must fail with for this GPU (NULL: no particular GPU), else NVML_SUCCESS. */
nvml_return call_failure(const struct machine *machine, const char *function, const struct gpu *gpu);

/* Releases the lock in a waiting call, until `watch` (of state_watch) is readable or `pause_ms` have passed, and
 * reads the machine again. */
nvml_return call_pause(struct call *call, int watch, unsigned pause_ms);

/* Copies a string out: INVALID_ARGUMENT without a target, INSUFFICIENT_SIZE when it does not fit. */
nvml_return call_text(char *target, unsigned size, const char *text);

#define CALL(frame)                                                                 \
    __attribute__((cleanup(call_end))) struct call call = (frame);                  \
    if (call.status != NVML_SUCCESS)                                                \
        return call.status

#define REQUIRE(condition)                      \
    do {                                        \
        if (!(condition))                       \
            return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)

/* A function of the most frequent shape: one number about one whole GPU. */
#define GPU_NUMBER(function, type, expression)                       \
    NVML_API nvml_return function(nvml_device device, type *value)   \
    {                                                                \
        CALL(call_gpu(__func__, device));                            \
        REQUIRE(value);                                              \
        *value = (expression);                                       \
        return NVML_SUCCESS;                                         \
    }

#endif
