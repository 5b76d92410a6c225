/* What nvidia-smi asks for beyond the public interface.
 *
 * nvidia-smi stops with "Mismatch in versions between nvidia-smi and NVML" unless the library hands out a table by
 * this function: its first word is its size in bytes, the others are functions. The binaries of Debian's 535.309.01 and
 * 550.163.01 accept any answer of the few that they call, so that one function serves all places.
 */
#include "api.h"

#include <stddef.h>

enum { SLOTS = 512 };

static nvml_return not_supported(void)
{
    return NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvml_return nvmlInternalGetExportTable(const void **table, const void *uuid)
{
    static union {
        size_t size;
        nvml_return (*function)(void);
    } slots[SLOTS];
    (void)uuid;
    if (!table)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (size_t i = 1; i < SLOTS; i++)
        slots[i].function = not_supported;
    slots[0].size = sizeof(slots);
    *table = slots;
    return NVML_SUCCESS;
}
