/* What callers of libcuda see, as far as the simulated library implements it: results and names of cuda.h. */
#ifndef GPUSIM_CUDA_API_H
#define GPUSIM_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_API __attribute__((visibility("default")))

typedef int cu_result;
typedef int cu_device;
typedef struct context *cu_context;
typedef uint64_t cu_pointer;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_UNKNOWN = 999,
};

cu_result cuInit(unsigned flags);
cu_result cuDeviceGetCount(int *count);
cu_result cuDeviceGet(cu_device *device, int ordinal);
cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device);
cu_result cuCtxDestroy_v2(cu_context context);
cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t size);
cu_result cuMemFree_v2(cu_pointer pointer);
cu_result cuMemcpyHtoD_v2(cu_pointer target, const void *source, size_t size);
cu_result cuMemcpyDtoH_v2(void *target, cu_pointer source, size_t size);
cu_result cuGetErrorName(cu_result error, const char **name);

#endif
