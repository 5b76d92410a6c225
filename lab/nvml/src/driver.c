#include "driver.h"

#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char library_name[] = "libnvidia-ml.so.";

const char *driver_version(const struct machine *machine)
{
    const char *file = strrchr(state_library_file(), '/');
    if (machine->driver_version[0])
        return machine->driver_version;
    if (!file || strncmp(file + 1, library_name, strlen(library_name)) != 0)
        return "0.0";
    return file + 1 + strlen(library_name);
}

unsigned driver_cuda_version(const struct machine *machine)
{
    static const struct {
        int branch;
        unsigned version;
    } highest_first[] = {{580, 13000}, {570, 12080}, {560, 12060}, {550, 12040}, {535, 12020}, {525, 12000}};
    int branch = atoi(driver_version(machine));
    if (machine->cuda_version)
        return machine->cuda_version;
    for (size_t i = 0; i < sizeof(highest_first) / sizeof(highest_first[0]); i++)
        if (branch >= highest_first[i].branch)
            return highest_first[i].version;
    return 11040;
}

nvml_return driver_check(const struct machine *machine)
{
    char path[PATH_SIZE + 32], version[TEXT_SIZE] = "";
    if (strcmp(machine->module, "check") != 0)
        return NVML_SUCCESS;
    snprintf(path, sizeof(path), "%s/module/nvidia/version", machine->sys_root);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    char *line = fgets(version, sizeof(version), file);
    fclose(file);
    if (!line)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    version[strcspn(version, "\n")] = '\0';
    return strcmp(version, driver_version(machine)) == 0 ? NVML_SUCCESS : NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}
