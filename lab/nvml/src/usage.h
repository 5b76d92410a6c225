/* How much memory of a GPU the processes of a control group have.
 *
 * A process that allocates through the simulated CUDA library keeps a file in memory for each GPU, named after it and as
 * large (without content) as what it has. So nothing has to be written that others share, a container's read-only mount
 * of the library is no obstacle, and what a killed process had is free again.
 */
#ifndef GPUSIM_USAGE_H
#define GPUSIM_USAGE_H

#include "machine.h"

#include <stdbool.h>

/* Adds bytes to what this process has of a GPU (less, if negative); false where that cannot be kept. */
bool usage_add(const char *gpu_uuid, int64_t bytes);

/* Bytes that this process has of a GPU. */
uint64_t usage_own(const char *gpu_uuid);

/* Bytes that processes of a group and of those below it have, as far as this process sees processes. */
uint64_t usage_of_group(const char *gpu_uuid, const char *path);

#endif
