/* The real library opens CUDA's when its first session begins, and leaves it open with a descriptor when it is unloaded
   (seen with driver 580.159.04). */
#include "libcuda.h"

#include <dlfcn.h>
#include <stddef.h>
#include <sys/eventfd.h>

static int (*cuda_version)(int *);

void libcuda_open(void)
{
    static bool was_tried;
    void *cuda = was_tried ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    was_tried = true;
    if (!cuda || !dlsym(cuda, "cuInit"))
        return;
    *(void **)&cuda_version = dlsym(cuda, "cuDriverGetVersion");
    (void)eventfd(0, EFD_CLOEXEC);
}

bool libcuda_version(int *version)
{
    return cuda_version && cuda_version(version) == 0;
}
