/* Loads and unloads modules like the kernel, and shows them in /sys/module and /proc/modules.
 *
 * A module is in use while another module needs it or a process has one of its device nodes open. Failures on demand:
 * a file /etc/gpusim/fail/NAME (stays) or /run/gpusim/fail/NAME (until the reboot) holds the errno of the next loads.
 * A file /run/gpusim/pins/NAME (until the reboot) holds how often the kernel itself uses a module, for which no process
 * stands.
 */
#include "nodesim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OURS "nvidia" /* modules with this prefix are simulated here; others count as built in */

/* Whether this is a node whose module interface is ours; only root may change it, as with the kernel's. */
int is_simulated(void)
{
    return access(RELEASE_FILE, F_OK) == 0 && access(MODULE_DIR, W_OK) == 0;
}

static int lock(void)
{
    mkdir(STATE_DIR, 0755);
    int fd = kernel_open(STATE_DIR "/lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        flock(fd, LOCK_EX);
    return fd;
}

/* Release the lock; keep the caller's errno. */
static void unlock(int fd)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* The path of a module's file in /sys/module; `file` may be "". */
static const char *module_path(char *path, const char *name, const char *file)
{
    snprintf(path, PATH_SIZE, MODULE_DIR "/%s%s%s", name, *file ? "/" : "", file);
    return path;
}

/* Count the modules that need `name`, and list them as /proc/modules does: "a,b,". */
static int list_holders(const char *name, char *list, size_t size)
{
    char path[PATH_SIZE];
    DIR *folder = opendir(module_path(path, name, "holders"));
    struct dirent *entry;
    int count = 0;
    *list = '\0';
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        size_t used = strlen(list);
        snprintf(list + used, size - used, "%s,", entry->d_name);
        count++;
    }
    if (folder)
        closedir(folder);
    return count;
}

static int count_pins(const char *name)
{
    char path[PATH_SIZE], text[32];
    snprintf(path, sizeof path, STATE_DIR "/pins/%s", name);
    return read_text(path, text, sizeof text) > 0 ? parse_number(text) : 0;
}

/* Write the use count of one module; append its line of /proc/modules at `line`. */
static int describe(const char *name, char *line, size_t size)
{
    char path[PATH_SIZE], holders[LINE_SIZE], core_size[32] = "0";
    int count = list_holders(name, holders, sizeof holders);
    int uses = count + count_device_users(name) + count_pins(name);
    write_text(module_path(path, name, "refcnt"), "%d\n", uses);
    read_text(module_path(path, name, "coresize"), core_size, sizeof core_size);
    return snprintf(line, size, "%s %s %d %s Live 0x0000000000000000 (POE)\n", name, core_size, uses,
                    count ? holders : "-");
}

static void refresh_locked(void)
{
    char text[TEXT_SIZE] = "";
    size_t used = 0;
    DIR *folder = opendir(MODULE_DIR);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.' && used < sizeof text - LINE_SIZE * 2)
            used += (size_t)describe(entry->d_name, text + used, sizeof text - used);
    if (folder)
        closedir(folder);
    write_text(MODULES_FILE, "%s", text);
}

/* Update use counts and /proc/modules: called before they are read. */
void refresh_use_counts(void)
{
    if (!is_simulated())
        return;
    int error = errno, fd = lock();
    refresh_locked();
    unlock(fd);
    errno = error;
}

static int injected_error(const char *name)
{
    static const char *const folders[] = {STATE_DIR "/fail", CONFIG_DIR "/fail"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_SIZE], text[32];
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (read_text(path, text, sizeof text) > 0 && parse_number(text))
            return parse_number(text);
    }
    return 0;
}

static int has_right_kernel(const char *name, const char *vermagic)
{
    char release[LINE_SIZE];
    if (read_text(RELEASE_FILE, release, sizeof release) < 0)
        return 0;
    size_t length = strlen(release);
    if (!strncmp(vermagic, release, length) && vermagic[length] == ' ')
        return 1;
    log_kernel("%s: version magic '%s' should be '%s'\n", name, vermagic, release);
    return 0;
}

/* 0 if the module `needed` is loaded with the same version; otherwise the kernel's errno. */
static int check_needed(const char *name, const char *version, const char *needed)
{
    char path[PATH_SIZE], loaded[LINE_SIZE];
    if (read_text(module_path(path, needed, "version"), loaded, sizeof loaded) < 0) {
        log_kernel("%s: Unknown symbol of %s (err -2)\n", name, needed);
        return ENOENT;
    }
    if (strcmp(loaded, version)) {
        log_kernel("%s: disagrees about version of symbols of %s: %s, not %s\n", name, needed, version, loaded);
        return EINVAL;
    }
    return 0;
}

/* The next name of "a,b,c" into `name`; NULL at the end. */
static const char *next_needed(const char *list, char *name)
{
    if (!list || !*list)
        return NULL;
    module_name(name, list);
    const char *comma = strchr(list, ',');
    return comma ? comma + 1 : "";
}

static int check_all_needed(const char *name, const struct modinfo *info)
{
    char needed[NAME_SIZE];
    for (const char *rest = info->depends; (rest = next_needed(rest, needed));) {
        int error = strncmp(needed, OURS, strlen(OURS)) ? 0 : check_needed(name, info->version, needed);
        if (error)
            return error;
    }
    return 0;
}

static void hold_needed(const char *name, const char *depends)
{
    char needed[NAME_SIZE], path[PATH_SIZE];
    for (const char *rest = depends; (rest = next_needed(rest, needed));) {
        module_path(path, needed, "holders/");
        strncat(path, name, sizeof path - strlen(path) - 1);
        write_text(path, "%s", "");
    }
}

static void release_needed(const char *name)
{
    char path[PATH_SIZE];
    DIR *folder = opendir(MODULE_DIR);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, MODULE_DIR "/%.120s/holders/%s", entry->d_name, name);
        unlink(path);
    }
    if (folder)
        closedir(folder);
}

static void show_module(const char *name, const struct modinfo *info)
{
    char path[PATH_SIZE];
    mkdir(module_path(path, name, ""), 0755);
    mkdir(module_path(path, name, "holders"), 0755);
    write_text(module_path(path, name, "version"), "%s\n", info->version);
    write_text(module_path(path, name, "srcversion"), "%s\n", info->srcversion);
    write_text(module_path(path, name, "taint"), "%s\n", "POE");
    write_text(module_path(path, name, "coresize"), "%zu\n", info->image_size);
    write_text(module_path(path, name, "initstate"), "%s\n", "live");
    hold_needed(name, info->depends);
}

static int load_locked(const unsigned char *image, size_t size)
{
    struct modinfo info;
    char name[NAME_SIZE], path[PATH_SIZE];
    if (read_modinfo(image, size, &info) < 0)
        return refuse(ENOEXEC);
    module_name(name, info.name);
    if (!has_right_kernel(name, info.vermagic))
        return refuse(ENOEXEC);
    if (access(module_path(path, name, ""), F_OK) == 0)
        return refuse(EEXIST);
    int error = injected_error(name);
    if (error)
        log_kernel("%s: injected error %d\n", name, error);
    else
        error = check_all_needed(name, &info);
    if (error)
        return refuse(error);
    show_module(name, &info);
    if (!strcmp(name, "nvidia"))
        show_driver(&info);
    make_devices(name);
    log_kernel("%s: loaded %s\n", name, info.version);
    refresh_locked();
    return 0;
}

int load_module(const unsigned char *image, size_t size)
{
    int fd = lock(), result = load_locked(image, size);
    unlock(fd);
    return result;
}

static int unload_locked(const char *name)
{
    char path[PATH_SIZE], holders[LINE_SIZE];
    if (access(module_path(path, name, ""), F_OK) < 0)
        return refuse(ENOENT);
    if (list_holders(name, holders, sizeof holders) + count_device_users(name) + count_pins(name) > 0) {
        refresh_locked();
        return refuse(EAGAIN);
    }
    remove_tree(path);
    release_needed(name);
    hide_driver(name);
    log_kernel("%s: unloaded\n", name);
    refresh_locked();
    return 0;
}

int unload_module(const char *text)
{
    char name[NAME_SIZE];
    module_name(name, text);
    int fd = lock(), result = unload_locked(name);
    unlock(fd);
    return result;
}
