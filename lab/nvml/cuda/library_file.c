/* The machine is the one of the simulated NVML beside this library: libnvidia-ml.so.<version> for libcuda.so.<version>. */
#define _GNU_SOURCE
#include "../src/state.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *state_library_file(void)
{
    static const char own[] = "/libcuda.so.";
    static char path[PATH_MAX + sizeof("/libnvidia-ml.so.")];
    char file[PATH_MAX];
    Dl_info info;
    if (path[0] || !dladdr((const void *)state_library_file, &info) || !realpath(info.dli_fname, file))
        return path;
    char *name = strrchr(file, '/');
    if (name && strncmp(name, own, strlen(own)) == 0) {
        *name = '\0';
        snprintf(path, sizeof(path), "%s/libnvidia-ml.so.%s", file, name + strlen(own));
    }
    return path;
}
