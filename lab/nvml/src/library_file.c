#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

const char *state_library_file(void)
{
    static char path[PATH_MAX];
    Dl_info info;
    if (!path[0] && (!dladdr((const void *)state_library_file, &info) || !realpath(info.dli_fname, path)))
        path[0] = '\0';
    return path;
}
