/* nodesim: simulates the kernel's module interface at the libc boundary.
 *
 * Loaded into every program of a node through /etc/ld.so.preload. modprobe, insmod, rmmod, lsmod, modinfo, depmod,
 * systemd-modules-load, the .ko files and the packages stay real; only the kernel behind them is simulated:
 *
 *   calls.c    the interposed functions of libc, and the way past them to the kernel
 *   modinfo.c  reading the metadata of a .ko file
 *   modules.c  loading, unloading, use counts: /sys/module, /proc/modules
 *   devices.c  the driver's device nodes, who holds them, /proc/driver, /proc/devices
 *   text.c     small files
 *
 * /sys/module and /proc/driver are tmpfs mounts of the node, so a reboot unloads everything. Programs that are linked
 * statically do not see any of this. A library built here must load on every suite: nothing newer than glibc 2.34 is
 * used (no strtol and scanf: newer headers turn them into newer symbols).
 */
#ifndef NODESIM_H
#define NODESIM_H

#define _GNU_SOURCE
#include <stddef.h>

#define CONFIG_DIR "/etc/gpusim"
#define STATE_DIR "/run/gpusim"
#define MODULE_DIR "/sys/module"
#define DRIVER_DIR "/proc/driver/nvidia"
#define CAPABILITIES_DIR "/proc/driver/nvidia-caps"
#define MIG_MINORS CAPABILITIES_DIR "/mig-minors"
#define RELEASE_FILE CONFIG_DIR "/release"
#define GPUS_FILE CONFIG_DIR "/gpus"
#define MODULES_FILE STATE_DIR "/modules"
#define DEVICES_FILE STATE_DIR "/devices"

enum { NAME_SIZE = 64, LINE_SIZE = 256, PATH_SIZE = 512, TEXT_SIZE = 16384 };

/* calls.c */
int kernel_open(const char *path, int flags, unsigned mode);

/* modinfo.c: the strings point into the image, "" where a field is missing. */
struct modinfo {
    const char *name, *version, *srcversion, *vermagic, *depends, *license;
    size_t image_size;
};
int read_modinfo(const unsigned char *image, size_t size, struct modinfo *info);

/* modules.c: 0, or -1 with errno as the kernel sets it. */
int load_module(const unsigned char *image, size_t size);
int unload_module(const char *name);
void refresh_use_counts(void);
int is_simulated(void);

/* devices.c */
void show_driver(const struct modinfo *info);
void hide_driver(const char *module);
void make_devices(const char *module);
int count_device_users(const char *module);

/* text.c */
int read_text(const char *path, char *text, size_t size);
void write_text(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
void append_text(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_kernel(const char *format, ...) __attribute__((format(printf, 1, 2)));
void remove_tree(const char *path);
int parse_number(const char *text);
void module_name(char *name, const char *text);

#endif
