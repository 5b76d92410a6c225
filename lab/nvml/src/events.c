/* NVML: event sets, and waiting for XID errors.
 *
 * The machine's events carry a growing sequence number. A set remembers up to which one it has looked, so that each of
 * its registered GPUs gets every event that happened after the set was made once, and in order.
 */
#include "call.h"
#include "session.h"
#include "state.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* How late an event may be noticed where the file cannot be watched, and where it can. */
enum { TICK_MS = 20, WATCHED_TICK_MS = 1000 };

struct event_set {
    uint64_t seen;
    int watch; /* of state_watch */
    uint64_t types[MAX_GPUS]; /* by position: event types registered for it */
};

static uint64_t last_sequence(const struct machine *machine)
{
    uint64_t last = 0;
    for (size_t i = 0; i < machine->event_count; i++)
        if (machine->events[i].sequence > last)
            last = machine->events[i].sequence;
    return last;
}

NVML_API nvml_return nvmlEventSetCreate(struct event_set **set)
{
    CALL(call_system(__func__));
    REQUIRE(set);
    *set = calloc(1, sizeof(**set));
    if (!*set)
        return NVML_ERROR_MEMORY;
    (*set)->watch = state_watch(); /* before the machine is looked at, so that nothing falls in between */
    (*set)->seen = last_sequence(call.machine);
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlEventSetFree(struct event_set *set)
{
    CALL(call_system(__func__));
    REQUIRE(set);
    if (set->watch >= 0)
        close(set->watch);
    free(set);
    return NVML_SUCCESS;
}

GPU_NUMBER(nvmlDeviceGetSupportedEventTypes, uint64_t, NVML_EVENTS)

NVML_API nvml_return nvmlDeviceRegisterEvents(nvml_device device, uint64_t types, struct event_set *set)
{
    CALL(call_gpu(__func__, device));
    REQUIRE(set);
    if ((types & NVML_EVENTS) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    set->types[device->position] |= types;
    return NVML_SUCCESS;
}

/* The handle of the GPU with this place in the machine, if this session has it. */
static nvml_device handle_of(const struct machine *machine, unsigned gpu)
{
    for (unsigned i = 0; i < session_gpu_count(); i++) {
        const struct gpu *found = call_find_gpu(machine, session_gpu(i));
        if (found && (unsigned)(found - machine->gpus) == gpu)
            return session_gpu(i);
    }
    return NULL;
}

/* Events are kept in order of their sequence. */
static bool take_event(const struct machine *machine, struct event_set *set, struct nvml_event *taken)
{
    for (size_t i = 0; i < machine->event_count; i++) {
        const struct event *event = &machine->events[i];
        nvml_device device = event->sequence > set->seen ? handle_of(machine, event->gpu) : NULL;
        if (event->sequence > set->seen)
            set->seen = event->sequence;
        if (!device || !(set->types[device->position] & NVML_EVENT_XID))
            continue;
        *taken = (struct nvml_event){device, NVML_EVENT_XID, event->xid, event->gpu_instance, event->compute_instance};
        return true;
    }
    return false;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static nvml_return wait_for_event(struct call *call, struct event_set *set, unsigned timeout_ms,
                                  struct nvml_event *event)
{
    int64_t end = now_ms() + timeout_ms, tick = set->watch < 0 ? TICK_MS : WATCHED_TICK_MS;
    while (!take_event(call->machine, set, event)) {
        int64_t left = end - now_ms();
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        nvml_return status = call_pause(call, set->watch, (unsigned)(left < tick ? left : tick));
        if (status == NVML_SUCCESS)
            status = call_failure(call->machine, "nvmlEventSetWait", NULL);
        if (status != NVML_SUCCESS)
            return status;
    }
    return NVML_SUCCESS;
}

NVML_API nvml_return nvmlEventSetWait_v2(struct event_set *set, struct nvml_event *event, unsigned timeout_ms)
{
    CALL(call_system(__func__));
    REQUIRE(set && event);
    return wait_for_event(&call, set, timeout_ms, event);
}

NVML_API nvml_return nvmlEventSetWait(struct event_set *set, struct nvml_event_v1 *event, unsigned timeout_ms)
{
    struct nvml_event taken;
    CALL(call_system(__func__));
    REQUIRE(set && event);
    nvml_return status = wait_for_event(&call, set, timeout_ms, &taken);
    if (status == NVML_SUCCESS)
        *event = (struct nvml_event_v1){taken.device, taken.type, taken.data};
    return status;
}
