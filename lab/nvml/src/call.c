#include "call.h"

#include "driver.h"
#include "libcuda.h"
#include "session.h"
#include "state.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit calls without their nvmlShutdown */

enum { SHORTEST_SLEEP_US = 200 }; /* the kernel adds its timer slack of 50 us: a shorter time passes awake */

static void sleep_us(unsigned long us)
{
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&pause, NULL);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void spend_us(unsigned us)
{
    int64_t end = now_ns() + us * 1000ll;
    if (us >= SHORTEST_SLEEP_US)
        sleep_us(us);
    while (now_ns() < end) {
    }
}

/* Length of the name without a suffix such as _v2. */
static size_t plain_length(const char *function)
{
    const char *suffix = strrchr(function, '_');
    if (suffix && suffix[1] == 'v' && strspn(suffix + 2, "0123456789") == strlen(suffix + 2))
        return (size_t)(suffix - function);
    return strlen(function);
}

nvml_return call_failure(const struct machine *machine, const char *function, const struct gpu *gpu)
{
    size_t length = plain_length(function);
    for (size_t i = 0; i < machine->failure_count; i++) {
        const struct failure *failure = &machine->failures[i];
        bool is_meant = strcmp(failure->function, "*") == 0 ||
                        (strlen(failure->function) == length && strncmp(failure->function, function, length) == 0);
        bool is_here = failure->gpu < 0 ? !gpu : gpu && gpu - machine->gpus == failure->gpu;
        if (is_meant && is_here && driver_fails(machine, failure))
            return failure->code;
    }
    return NVML_SUCCESS;
}

const struct gpu *call_find_gpu(const struct machine *machine, nvml_device device)
{
    const char *uuid = session_gpu(device->position)->uuid;
    for (size_t i = 0; i < machine->gpu_count; i++)
        if (strcmp(machine->gpus[i].uuid, uuid) == 0)
            return &machine->gpus[i];
    return NULL;
}

const struct mig *call_find_mig(const struct gpu *gpu, const char *uuid)
{
    for (size_t i = 0; i < gpu->mig_count; i++)
        if (strcmp(gpu->migs[i].uuid, uuid) == 0)
            return &gpu->migs[i];
    return NULL;
}

static nvml_return look(struct call *call, const char *function)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    call->machine = state_machine();
    if (!call->machine)
        return NVML_ERROR_UNKNOWN;
    call->cost_us = call->machine->call_cost_us;
    return call_failure(call->machine, function, NULL);
}

static nvml_return resolve(struct call *call, const char *function, nvml_device device)
{
    if (!session_is_handle(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    call->gpu = call_find_gpu(call->machine, device);
    if (!call->gpu)
        return NVML_ERROR_GPU_IS_LOST;
    if (device->is_mig) {
        call->mig = call_find_mig(call->gpu, device->uuid);
        if (!call->mig)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    return call_failure(call->machine, function, call->gpu);
}

struct call call_system(const char *function)
{
    struct call call = {0};
    pthread_mutex_lock(&lock);
    call.status = look(&call, function);
    return call;
}

struct call call_device(const char *function, nvml_device device)
{
    struct call call = call_system(function);
    if (call.status == NVML_SUCCESS)
        call.status = resolve(&call, function, device);
    return call;
}

struct call call_gpu(const char *function, nvml_device device)
{
    struct call call = call_device(function, device);
    if (call.status == NVML_SUCCESS && call.mig)
        call.status = NVML_ERROR_NOT_SUPPORTED;
    return call;
}

void call_end(struct call *call)
{
    pthread_mutex_unlock(&lock);
    if (call->cost_us > 0)
        spend_us(call->cost_us);
}

nvml_return call_pause(struct call *call, int watch, unsigned pause_ms)
{
    char changes[4096];
    struct pollfd waited = {.fd = watch, .events = POLLIN}; /* poll ignores a descriptor of -1 */
    pthread_mutex_unlock(&lock);
    poll(&waited, 1, (int)pause_ms);
    while (watch >= 0 && read(watch, changes, sizeof(changes)) > 0) {
    }
    pthread_mutex_lock(&lock);
    call->machine = users > 0 ? state_machine() : NULL;
    return call->machine ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvml_return start(const char *function)
{
    state_open();
    const struct machine *machine = state_machine();
    nvml_return status = machine ? call_failure(machine, function, NULL) : NVML_ERROR_UNKNOWN;
    if (status == NVML_SUCCESS)
        status = driver_check(machine);
    if (status == NVML_SUCCESS)
        status = session_start(machine);
    if (status != NVML_SUCCESS) {
        session_stop();
        state_close();
    } else {
        libcuda_open();
    }
    return status;
}

nvml_return call_init(const char *function)
{
    pthread_mutex_lock(&lock);
    nvml_return status = users > 0 ? NVML_SUCCESS : start(function);
    if (status == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&lock);
    return status;
}

nvml_return call_shutdown(void)
{
    pthread_mutex_lock(&lock);
    nvml_return status = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (users > 0 && --users == 0) {
        session_stop();
        state_close();
    }
    pthread_mutex_unlock(&lock);
    return status;
}

nvml_return call_text(char *target, unsigned size, const char *text)
{
    if (!target)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(target, text);
    return NVML_SUCCESS;
}
