/* The driver's device nodes, who holds them open, /proc/driver/nvidia, and the numbers of MIG's capabilities.
 *
 * The nodes have NVIDIA's names and openable stand-in numbers: the virtual consoles (character major 4), which no
 * container may open by default. So "opens" and "EPERM" tell what was allowed, without a GPU.
 */
#include "nodesim.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { STAND_IN_MAJOR = 4, FIRST_GPU = 16, LAST_GPU = 31 };
enum { GPU_INSTANCES = 15, COMPUTE_INSTANCES = 8 }; /* as lab/nvml/capabilities.py */

static const struct {
    const char *module, *path;
    unsigned minor;
} fixed_devices[] = {
    {"nvidia", "/dev/nvidiactl", 62},
    {"nvidia_uvm", "/dev/nvidia-uvm", 60},
    {"nvidia_uvm", "/dev/nvidia-uvm-tools", 59},
    {"nvidia_modeset", "/dev/nvidia-modeset", 61},
};
enum { FIXED_DEVICES = sizeof fixed_devices / sizeof fixed_devices[0] };

/* A line of /etc/gpusim/gpus: "pci_address minor uuid model...". */
struct gpu {
    char address[16], uuid[64], model[LINE_SIZE];
    unsigned minor;
};

/* Cut the next word off a line: return it, and advance the line past the blank. */
static const char *next_word(char **line)
{
    const char *word = *line;
    char *blank = strchr(*line, ' ');
    if (!blank)
        return NULL;
    *blank = '\0';
    *line = blank + 1;
    return word;
}

static int parse_gpu(char *line, struct gpu *gpu)
{
    const char *address = next_word(&line), *minor = address ? next_word(&line) : NULL;
    const char *uuid = minor ? next_word(&line) : NULL;
    if (!uuid)
        return -1;
    snprintf(gpu->address, sizeof gpu->address, "%s", address);
    snprintf(gpu->uuid, sizeof gpu->uuid, "%s", uuid);
    snprintf(gpu->model, sizeof gpu->model, "%s", line);
    gpu->minor = (unsigned)parse_number(minor);
    return gpu->minor <= LAST_GPU - FIRST_GPU ? 0 : -1;
}

/* Call `visit` for each GPU of the node. */
static void each_gpu(void (*visit)(const struct gpu *, const char *version), const char *version)
{
    char text[TEXT_SIZE], *rest = text, *line;
    if (read_text(GPUS_FILE, text, sizeof text) < 0)
        return;
    while ((line = strsep(&rest, "\n"))) {
        struct gpu gpu;
        if (parse_gpu(line, &gpu) == 0)
            visit(&gpu, version);
    }
}

static void make_node(const char *path, unsigned minor)
{
    unlink(path);
    mknod(path, S_IFCHR | 0666, makedev(STAND_IN_MAJOR, minor));
    chmod(path, 0666); /* past the umask, as udev does */
}

static void make_gpu_node(const struct gpu *gpu, const char *version)
{
    char path[PATH_SIZE];
    (void)version;
    snprintf(path, sizeof path, "/dev/nvidia%u", gpu->minor);
    make_node(path, FIRST_GPU + gpu->minor);
}

/* According to the current list of GPUs, which may have changed since their nodes were created. */
static void remove_gpu_nodes(void)
{
    char path[PATH_SIZE];
    for (unsigned minor = 0; minor <= LAST_GPU - FIRST_GPU; minor++) {
        snprintf(path, sizeof path, "/dev/nvidia%u", minor);
        unlink(path);
    }
}

/* Create the nodes of a module that was just loaded. */
void make_devices(const char *module)
{
    for (int i = 0; i < FIXED_DEVICES; i++)
        if (!strcmp(module, fixed_devices[i].module))
            make_node(fixed_devices[i].path, fixed_devices[i].minor);
    if (!strcmp(module, "nvidia"))
        each_gpu(make_gpu_node, "");
}

static void show_gpu(const struct gpu *gpu, const char *version)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, DRIVER_DIR "/gpus/%s", gpu->address);
    mkdir(path, 0555);
    strncat(path, "/information", sizeof path - strlen(path) - 1);
    write_text(path,
               "Model: \t\t %s\nIRQ:   \t\t %u\nGPU UUID: \t %s\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\n"
               "DMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t %s\nDevice Minor: \t %u\n"
               "GPU Firmware: \t %s\nGPU Excluded:\t No\n",
               gpu->model, 40 + gpu->minor, gpu->uuid, gpu->address, gpu->minor, version);
}

/* Number all capabilities that there can be, as the driver does; minors are the GPUs' own, without a gap. */
static void number_capabilities(const struct gpu *gpu, const char *version)
{
    unsigned number = 3 + gpu->minor * GPU_INSTANCES * (1 + COMPUTE_INSTANCES);
    (void)version;
    for (unsigned instance = 0; instance < GPU_INSTANCES; instance++) {
        append_text(MIG_MINORS, "gpu%u/gi%u/access %u\n", gpu->minor, instance, number++);
        for (unsigned compute = 0; compute < COMPUTE_INSTANCES; compute++)
            append_text(MIG_MINORS, "gpu%u/gi%u/ci%u/access %u\n", gpu->minor, instance, compute, number++);
    }
}

static void show_capabilities(void)
{
    char devices[TEXT_SIZE];
    mkdir(CAPABILITIES_DIR, 0555);
    write_text(MIG_MINORS, "config 1\nmonitor 2\n");
    each_gpu(number_capabilities, "");
    char *kinds = read_text("/proc/devices", devices, sizeof devices) > 0 ? strchr(devices, '\n') : NULL;
    if (kinds) {
        *kinds++ = '\0';
        write_text(DEVICES_FILE, "%s\n%3d nvidia-caps\n%s\n", devices, STAND_IN_MAJOR, kinds);
    }
}

/* Fill /proc/driver for the module that was just loaded. */
void show_driver(const struct modinfo *info)
{
    int is_open = strcmp(info->license, "NVIDIA") != 0;
    show_capabilities();
    mkdir(DRIVER_DIR, 0555);
    mkdir(DRIVER_DIR "/gpus", 0555);
    write_text(DRIVER_DIR "/version", "NVRM version: NVIDIA UNIX %s  %s  Release Build\nGCC version:  simulated\n",
               is_open ? "Open Kernel Module for x86_64" : "x86_64 Kernel Module", info->version);
    each_gpu(show_gpu, info->version);
}

/* Remove a module's nodes, and for nvidia itself what it shows in /proc. */
void hide_driver(const char *module)
{
    for (int i = 0; i < FIXED_DEVICES; i++)
        if (!strcmp(module, fixed_devices[i].module))
            unlink(fixed_devices[i].path);
    if (!strcmp(module, "nvidia")) {
        remove_gpu_nodes();
        remove_tree(DRIVER_DIR);
        remove_tree(CAPABILITIES_DIR);
        unlink(DEVICES_FILE);
    }
}

static int belongs_to(unsigned minor, const char *module)
{
    for (int i = 0; i < FIXED_DEVICES; i++)
        if (minor == fixed_devices[i].minor)
            return !strcmp(module, fixed_devices[i].module);
    return minor >= FIRST_GPU && minor <= LAST_GPU && !strcmp(module, "nvidia");
}

static int count_in(const char *descriptors, const char *module)
{
    DIR *folder = opendir(descriptors);
    struct dirent *entry;
    int users = 0;
    while (folder && (entry = readdir(folder))) {
        struct stat status;
        if (!isdigit((unsigned char)entry->d_name[0]) || fstatat(dirfd(folder), entry->d_name, &status, 0) < 0)
            continue;
        if (S_ISCHR(status.st_mode) && major(status.st_rdev) == STAND_IN_MAJOR)
            users += belongs_to(minor(status.st_rdev), module);
    }
    if (folder)
        closedir(folder);
    return users;
}

/* Open descriptors of the module's devices, found by device number: whatever path a container's process used.
 * The kernel counts an inherited descriptor once; here each process that has it counts. */
int count_device_users(const char *module)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    int users = 0;
    while (processes && (entry = readdir(processes))) {
        char path[PATH_SIZE];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/fd", entry->d_name);
        users += count_in(path, module);
    }
    if (processes)
        closedir(processes);
    return users;
}
