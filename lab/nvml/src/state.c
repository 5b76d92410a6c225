#include "state.h"

#include "driver.h"
#include "mig_profiles.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern char *secure_getenv(const char *name); /* not by _GNU_SOURCE: scanf would be one that glibc has since 2.38 */

enum { AFTER_RELOAD_SIZE = (64 + 320) * MAX_GPUS };
enum { RETRIES = 200, RETRY_NS = 1000000 }; /* a writer needs microseconds; a dead one must not stop its readers */

static int descriptor = -1;
static off_t region;
static uint64_t loaded_generation;
static struct machine *loaded;

void state_open(void)
{
    struct stat status;
    const char *named = secure_getenv("GPUSIM_STATE");
    descriptor = open(named ? named : state_library_file(), O_RDONLY | O_CLOEXEC);
    region = 0;
    if (!named && descriptor >= 0 && fstat(descriptor, &status) == 0)
        region = status.st_size - STATE_SIZE;
}

void state_close(void)
{
    if (descriptor >= 0)
        close(descriptor);
    free(loaded);
    descriptor = -1;
    loaded = NULL;
    loaded_generation = 0;
}

static uint32_t adler32(const unsigned char *data, size_t length)
{
    uint32_t low = 1, high = 0;
    for (size_t i = 0; i < length; i++) {
        low = (low + data[i]) % 65521;
        high = (high + low) % 65521;
    }
    return high << 16 | low;
}

static bool read_header(struct state_header *header)
{
    return region >= 0 && pread(descriptor, header, sizeof(*header), region) == (ssize_t)sizeof(*header) &&
           memcmp(header->magic, "GPUSIM1\n", sizeof(header->magic)) == 0 &&
           header->length <= STATE_SIZE - STATE_HEADER_SIZE;
}

static struct machine *read_machine(const struct state_header *header)
{
    struct machine *machine = calloc(1, sizeof(*machine));
    char *text = malloc(header->length + 1u);
    bool good = machine && text &&
                pread(descriptor, text, header->length, region + STATE_HEADER_SIZE) == (ssize_t)header->length &&
                adler32((const unsigned char *)text, header->length) == header->adler32 &&
                machine_parse(machine, text, header->length) == 0;
    free(text);
    if (good)
        return machine;
    free(machine);
    return NULL;
}

/* Whether the module was loaded again since MIG instances were made, which it has forgotten then. */
static bool has_forgotten_mig(const struct machine *machine)
{
    return machine->mig_load && machine->mig_load != driver_load(machine);
}

/* A reload forgets instances and puts a pending mode in force; GPUs after NVIDIA Ampere forget their mode as well. */
static void forget_mig(struct machine *machine)
{
    for (size_t i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        gpu->mig_count = 0;
        gpu->mig_enabled = gpu->mig_pending = gpu->architecture <= ARCHITECTURE_AMPERE ? gpu->mig_pending : 0;
    }
}

/* The same for what was set of GPUs (settings.c): all of it is as the driver begins with. */
static bool has_forgotten_settings(const struct machine *machine)
{
    return machine->settings_load && machine->settings_load != driver_load(machine);
}

static void forget_settings(struct machine *machine)
{
    for (size_t i = 0; i < machine->gpu_count; i++) {
        struct gpu *gpu = &machine->gpus[i];
        gpu->persistence_mode = gpu->compute_mode = 0;
        gpu->power_limit_mw = gpu->power_limit_default_mw;
        gpu->clock_sm_locked_min = gpu->clock_sm_locked_max = 0;
        gpu->clock_memory_locked_min = gpu->clock_memory_locked_max = 0;
    }
}

enum outcome { CURRENT, BUSY, NOTHING };

/* One attempt: CURRENT when the machine in memory is the one in the file, BUSY while it is being written. */
static enum outcome refresh(void)
{
    struct state_header header;
    if (!read_header(&header))
        return NOTHING;
    if (header.generation % 2 != 0)
        return BUSY;
    if (loaded && header.generation == loaded_generation)
        return CURRENT;
    struct machine *machine = read_machine(&header);
    if (!machine)
        return BUSY;
    if (has_forgotten_mig(machine))
        forget_mig(machine);
    if (has_forgotten_settings(machine))
        forget_settings(machine);
    free(loaded);
    loaded = machine;
    loaded_generation = header.generation;
    return CURRENT;
}

const struct machine *state_machine(void)
{
    const struct timespec pause = {0, RETRY_NS};
    for (int attempt = 0; descriptor >= 0 && attempt < RETRIES && refresh() == BUSY; attempt++)
        nanosleep(&pause, NULL);
    return loaded;
}

/* Writes text and header as lab/nvml/state.py does: a generation that is odd while it lasts. */
static bool write_text(int file, struct state_header header, const char *text)
{
    const ssize_t size = (ssize_t)sizeof(header);
    header.generation |= 1;
    if (pwrite(file, &header, sizeof(header), region) != size)
        return false;
    bool good = pwrite(file, text, header.length, region + STATE_HEADER_SIZE) == (ssize_t)header.length;
    header.generation++;
    return pwrite(file, &header, sizeof(header), region) == size && good;
}

/* Takes the lines of MIG devices and modes out of a text, and returns its length then. */
static size_t drop_mig(char *text, size_t length)
{
    size_t kept = 0;
    for (char *line = text, *next; line < text + length; line = next) {
        char *end = memchr(line, '\n', length - (size_t)(line - text));
        int is_mig = 0;
        next = end ? end + 1 : text + length;
        sscanf(line, "gpu%*u.mig%*u.%n", &is_mig);
        if (!is_mig)
            sscanf(line, "gpu%*u.mig_enabled=%n", &is_mig);
        if (!is_mig)
            sscanf(line, "gpu%*u.mig_pending=%n", &is_mig);
        if (!is_mig) {
            memmove(text + kept, line, (size_t)(next - line));
            kept += (size_t)(next - line);
        }
    }
    return kept;
}

/* Writes down what a reload has left of a machine whose MIG devices and modes were dropped; returns the length then. */
static size_t write_modes(char *text, size_t length)
{
    for (size_t i = 0; i < loaded->gpu_count; i++)
        length += (size_t)sprintf(text + length, "gpu%zu.mig_enabled=%u\ngpu%zu.mig_pending=%u\n", i,
                                  loaded->gpus[i].mig_enabled, i, loaded->gpus[i].mig_pending);
    return length;
}

/* The same for settings that a reload has forgotten: later lines count. */
static size_t write_settings(char *text, size_t length)
{
    length += (size_t)sprintf(text + length, "settings_load=%" PRIu64 "\n", driver_load(loaded));
    for (size_t i = 0; i < loaded->gpu_count; i++) {
        length += (size_t)sprintf(text + length, "gpu%zu.persistence_mode=0\ngpu%zu.compute_mode=0\n", i, i);
        length += (size_t)sprintf(text + length, "gpu%zu.power_limit_mw=%u\n", i, loaded->gpus[i].power_limit_mw);
        length += (size_t)sprintf(text + length, "gpu%zu.clock_sm_locked_min=0\ngpu%zu.clock_sm_locked_max=0\n", i, i);
        length += (size_t)sprintf(text + length, "gpu%zu.clock_memory_locked_min=0\n", i);
        length += (size_t)sprintf(text + length, "gpu%zu.clock_memory_locked_max=0\n", i);
    }
    return length;
}

static bool append_locked(int file, const char *lines)
{
    struct state_header header;
    size_t more = strlen(lines);
    if (!loaded || !read_header(&header) || header.length + more + AFTER_RELOAD_SIZE > STATE_SIZE - STATE_HEADER_SIZE)
        return false;
    char *text = calloc(1, header.length + more + AFTER_RELOAD_SIZE + 1);
    bool good = text && pread(file, text, header.length, region + STATE_HEADER_SIZE) == (ssize_t)header.length;
    if (good) {
        if (has_forgotten_mig(loaded))
            header.length = (uint32_t)write_modes(text, drop_mig(text, header.length));
        if (has_forgotten_settings(loaded))
            header.length = (uint32_t)write_settings(text, header.length);
        memcpy(text + header.length, lines, more + 1);
        header.length += (uint32_t)more;
        header.adler32 = adler32((const unsigned char *)text, header.length);
        good = write_text(file, header, text);
    }
    free(text);
    return good;
}

/* The region for writing, this process its only writer until the descriptor is closed; -1 where it is read-only. */
static int open_locked(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    int file = descriptor >= 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0)
        flock(file, LOCK_EX);
    return file;
}

bool state_append(const char *lines)
{
    int file = open_locked();
    if (file < 0)
        return false;
    bool good = append_locked(file, lines);
    close(file);
    return good;
}

/* Takes the lines that begin with `prefix` out of a text, and returns its length then. */
static size_t drop_lines(char *text, size_t length, const char *prefix)
{
    size_t kept = 0;
    for (char *line = text, *next; line < text + length; line = next) {
        char *end = memchr(line, '\n', length - (size_t)(line - text));
        next = end ? end + 1 : text + length;
        if (strncmp(line, prefix, strlen(prefix)) != 0) {
            memmove(text + kept, line, (size_t)(next - line));
            kept += (size_t)(next - line);
        }
    }
    return kept;
}

static bool replace_locked(int file, const char *prefix, const char *lines)
{
    struct state_header header;
    size_t more = strlen(lines);
    char *text = read_header(&header) ? calloc(1, header.length + more + 1) : NULL;
    bool good = text && pread(file, text, header.length, region + STATE_HEADER_SIZE) == (ssize_t)header.length;
    if (good) {
        size_t kept = drop_lines(text, header.length, prefix);
        good = kept + more <= STATE_SIZE - STATE_HEADER_SIZE;
        memcpy(text + kept, lines, more + 1);
        header.length = (uint32_t)(kept + more);
        header.adler32 = adler32((const unsigned char *)text, header.length);
        good = good && write_text(file, header, text);
    }
    free(text);
    return good;
}

bool state_replace(const char *prefix, state_renderer render, const void *argument)
{
    int file = open_locked();
    if (file < 0)
        return false;
    const struct machine *machine = state_machine(); /* as the last writer left it */
    char *lines = machine ? render(machine, argument) : NULL;
    bool good = lines && replace_locked(file, prefix, lines);
    free(lines);
    close(file);
    return good;
}

int state_watch(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    int watch = descriptor >= 0 ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
    if (watch >= 0 && inotify_add_watch(watch, path, IN_MODIFY) < 0) {
        close(watch);
        return -1;
    }
    return watch;
}
