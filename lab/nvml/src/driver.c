#include "driver.h"

#include "state.h"

#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

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

bool driver_fails(const struct machine *machine, const struct failure *failure)
{
    return !failure->driver[0] || strcmp(failure->driver, driver_version(machine)) == 0;
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

static bool has_simulated_modules(const struct machine *machine)
{
    char path[PATH_SIZE + 32];
    struct statfs system;
    snprintf(path, sizeof(path), "%s/module", machine->sys_root);
    return statfs(path, &system) == 0 && system.f_type != SYSFS_MAGIC;
}

uint64_t driver_load(const struct machine *machine)
{
    char path[PATH_SIZE + 32];
    struct stat status;
    snprintf(path, sizeof(path), "%s/module/nvidia/version", machine->sys_root);
    if (!has_simulated_modules(machine) || stat(path, &status) != 0)
        return 0;
    return (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec;
}

/* The loaded module's version into `version`: from the simulated /sys/module of a node, or, where only the real one is
 * to be seen (a container mounts its own sysfs), as the machine says. False when no module is loaded. */
static bool read_module_version(const struct machine *machine, char *version, size_t size)
{
    char path[PATH_SIZE + 32];
    if (!has_simulated_modules(machine)) {
        const char *known = machine->module_version[0] ? machine->module_version : driver_version(machine);
        snprintf(version, size, "%s", known);
        return strcmp(known, "none") != 0;
    }
    snprintf(path, sizeof(path), "%s/module/nvidia/version", machine->sys_root);
    FILE *file = fopen(path, "re");
    char *line = file ? fgets(version, (int)size, file) : NULL;
    if (file)
        fclose(file);
    version[strcspn(version, "\n")] = '\0';
    return line != NULL;
}

nvml_return driver_check(const struct machine *machine)
{
    char version[TEXT_SIZE] = "";
    if (strcmp(machine->module, "check") != 0)
        return NVML_SUCCESS;
    if (!read_module_version(machine, version, sizeof(version)))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    return strcmp(version, driver_version(machine)) == 0 ? NVML_SUCCESS : NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}
