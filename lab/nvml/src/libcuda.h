/* What NVML does with CUDA's library. */
#ifndef GPUSIM_LIBCUDA_H
#define GPUSIM_LIBCUDA_H

#include <stdbool.h>

/* Open it, once for as long as this library is loaded. */
void libcuda_open(void);

/* Ask it for its version; false where it is not open. */
bool libcuda_version(int *version);

#endif
