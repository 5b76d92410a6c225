/* The functions of libc that programs of a node call instead of the kernel's module interface. */
#include "nodesim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* A system call without libc: an interposed function must not call itself. */
static long kernel_call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

int kernel_open(const char *path, int flags, unsigned mode)
{
    return (int)kernel_call(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

static long load_from(int fd)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return -1;
    void *image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED)
        return -1;
    long result = load_module(image, (size_t)status.st_size);
    int error = errno;
    munmap(image, (size_t)status.st_size);
    errno = error;
    return result;
}

long init_module(void *image, unsigned long size, const char *parameters)
{
    if (is_simulated())
        return load_module(image, size);
    return kernel_call(SYS_init_module, (long)image, (long)size, (long)parameters, 0, 0, 0);
}

long finit_module(int fd, const char *parameters, int flags)
{
    if (is_simulated())
        return load_from(fd);
    return kernel_call(SYS_finit_module, fd, (long)parameters, flags, 0, 0, 0);
}

long delete_module(const char *name, unsigned flags)
{
    if (is_simulated())
        return unload_module(name);
    return kernel_call(SYS_delete_module, (long)name, flags, 0, 0, 0, 0);
}

/* libkmod asks by number where its libc has no function. */
long syscall(long number, ...)
{
    long argument[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_init_module)
        return init_module((void *)argument[0], (unsigned long)argument[1], (const char *)argument[2]);
    if (number == SYS_finit_module)
        return finit_module((int)argument[0], (const char *)argument[1], (int)argument[2]);
    if (number == SYS_delete_module)
        return delete_module((const char *)argument[0], (unsigned)argument[1]);
    return kernel_call(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

int uname(struct utsname *name)
{
    int result = (int)kernel_call(SYS_uname, (long)name, 0, 0, 0, 0, 0), error = errno;
    char release[sizeof name->release];
    if (result == 0 && read_text(RELEASE_FILE, release, sizeof release) > 0)
        strcpy(name->release, release);
    errno = error;
    return result;
}

/* The file to open for `path`; use counts are updated first. */
static const char *redirect(const char *path)
{
    if (path && !strcmp(path, "/proc/devices"))
        return access(DEVICES_FILE, F_OK) < 0 ? path : DEVICES_FILE;
    if (!path || (strncmp(path, "/proc/modules", 14) && strncmp(path, MODULE_DIR "/", sizeof MODULE_DIR)))
        return path;
    const char *file = strrchr(path, '/');
    if (!strcmp(file, "/refcnt")) {
        refresh_use_counts();
        return path;
    }
    if (strcmp(path, "/proc/modules") || access(RELEASE_FILE, F_OK) < 0)
        return path;
    refresh_use_counts();
    return MODULES_FILE;
}

static unsigned mode_of(int flags, va_list list)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, unsigned) : 0;
}

/* open and openat, as they are called with and without _FILE_OFFSET_BITS=64 and with _FORTIFY_SOURCE. */
#define DEFINE_OPEN(function)                                                                                          \
    int function(const char *path, int flags, ...)                                                                     \
    {                                                                                                                  \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        unsigned mode = mode_of(flags, list);                                                                          \
        va_end(list);                                                                                                  \
        return kernel_open(redirect(path), flags, mode);                                                               \
    }
#define DEFINE_OPENAT(function)                                                                                        \
    int function(int folder, const char *path, int flags, ...)                                                         \
    {                                                                                                                  \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        unsigned mode = mode_of(flags, list);                                                                          \
        va_end(list);                                                                                                  \
        return (int)kernel_call(SYS_openat, folder, (long)redirect(path), flags, mode, 0, 0);                          \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return kernel_open(redirect(path), flags, 0);
}

int __open64_2(const char *path, int flags);
int __open64_2(const char *path, int flags)
{
    return kernel_open(redirect(path), flags, 0);
}

int __openat_2(int folder, const char *path, int flags);
int __openat_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags);
}

int __openat64_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags);
}

typedef FILE *(*fopen_function)(const char *, const char *);

FILE *fopen(const char *path, const char *mode)
{
    fopen_function next = (fopen_function)dlsym(RTLD_NEXT, "fopen");
    return next(redirect(path), mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    fopen_function next = (fopen_function)dlsym(RTLD_NEXT, "fopen64");
    return next(redirect(path), mode);
}
