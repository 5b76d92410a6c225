/* Parser of the machine's text: lines of "path=value", where a path is names and list positions joined by dots.
 *
 *     gpu0.ecc.enabled=1
 *     gpu0.link3.remote_pci=0000:c4:00.0
 *
 * Tables say which names a record has; a list grows by one when its next position is named.
 */
#include "machine.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum kind { END, UNSIGNED, SIGNED, LARGE, TEXT, RECORD, LIST };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size;               /* TEXT: bytes; LIST: bytes of an element */
    const struct field *fields; /* RECORD, LIST */
    size_t count_offset, limit; /* LIST */
};

#define F(type, kind, member) {#member, kind, offsetof(struct type, member), 0, NULL, 0, 0}
#define S(type, member) {#member, TEXT, offsetof(struct type, member), sizeof(((struct type *)0)->member), NULL, 0, 0}
#define R(type, member, table) {#member, RECORD, offsetof(struct type, member), 0, table, 0, 0}
#define L(type, name, member, count, limit, table) \
    {name, LIST, offsetof(struct type, member), sizeof(((struct type *)0)->member[0]), table, \
     offsetof(struct type, count), limit}
#define END_OF_TABLE {NULL, END, 0, 0, NULL, 0, 0}

static const struct field process_fields[] = {
    F(process, UNSIGNED, pid), F(process, LARGE, memory_used), F(process, UNSIGNED, graphics),
    F(process, UNSIGNED, sm_utilization), END_OF_TABLE};

static const struct field activity_fields[] = {
    F(activity, UNSIGNED, graphics), F(activity, UNSIGNED, tensor), F(activity, UNSIGNED, dram), END_OF_TABLE};

static const struct field link_fields[] = {
    F(link, UNSIGNED, active), S(link, remote_pci), F(link, UNSIGNED, remote_type), F(link, UNSIGNED, version),
    END_OF_TABLE};

static const struct field mig_fields[] = {
    F(mig, UNSIGNED, index), S(mig, uuid), S(mig, profile), F(mig, UNSIGNED, gpu_instance),
    F(mig, UNSIGNED, compute_instance), F(mig, UNSIGNED, placement_start), F(mig, UNSIGNED, placement_size),
    F(mig, LARGE, memory_total), F(mig, LARGE, memory_used),
    F(mig, UNSIGNED, multiprocessors), F(mig, UNSIGNED, gpu_slices), F(mig, UNSIGNED, compute_slices),
    F(mig, UNSIGNED, copy_engines), F(mig, UNSIGNED, decoders), F(mig, UNSIGNED, encoders), F(mig, UNSIGNED, jpeg),
    F(mig, UNSIGNED, ofa), R(mig, activity, activity_fields),
    L(mig, "process", processes, process_count, MAX_PROCESSES, process_fields),
    END_OF_TABLE};

static const struct field ecc_fields[] = {
    F(ecc, UNSIGNED, supported), F(ecc, UNSIGNED, enabled), F(ecc, UNSIGNED, pending),
    F(ecc, LARGE, volatile_corrected), F(ecc, LARGE, volatile_uncorrected), F(ecc, LARGE, aggregate_corrected),
    F(ecc, LARGE, aggregate_uncorrected), END_OF_TABLE};

static const struct field remapped_rows_fields[] = {
    F(remapped_rows, UNSIGNED, supported), F(remapped_rows, UNSIGNED, corrected),
    F(remapped_rows, UNSIGNED, uncorrected), F(remapped_rows, UNSIGNED, pending),
    F(remapped_rows, UNSIGNED, failed), END_OF_TABLE};

static const struct field gpu_fields[] = {
    S(gpu, name), S(gpu, uuid), S(gpu, serial), S(gpu, vbios), S(gpu, pci_address), F(gpu, UNSIGNED, pci_device_id),
    F(gpu, UNSIGNED, pci_subsystem_id), F(gpu, UNSIGNED, minor_number), F(gpu, UNSIGNED, brand),
    F(gpu, UNSIGNED, architecture), F(gpu, UNSIGNED, compute_major), F(gpu, UNSIGNED, compute_minor),
    F(gpu, UNSIGNED, cores), F(gpu, SIGNED, numa_node), F(gpu, UNSIGNED, board), F(gpu, UNSIGNED, pcie_switch),
    F(gpu, UNSIGNED, pcie_switch_tree), F(gpu, UNSIGNED, host_bridge), F(gpu, UNSIGNED, pcie_generation),
    F(gpu, UNSIGNED, pcie_width), F(gpu, UNSIGNED, pcie_replays), F(gpu, UNSIGNED, p2p_status),
    F(gpu, UNSIGNED, fabric_state), S(gpu, fabric_cluster), F(gpu, UNSIGNED, fabric_clique),
    F(gpu, LARGE, memory_total), F(gpu, LARGE, memory_used), F(gpu, LARGE, memory_reserved),
    F(gpu, LARGE, bar1_total), F(gpu, LARGE, bar1_used), F(gpu, UNSIGNED, temperature),
    F(gpu, UNSIGNED, memory_temperature), F(gpu, UNSIGNED, temperature_slowdown),
    F(gpu, UNSIGNED, temperature_shutdown), F(gpu, UNSIGNED, power_usage_mw), F(gpu, UNSIGNED, power_limit_mw),
    F(gpu, UNSIGNED, power_limit_default_mw), F(gpu, UNSIGNED, power_limit_min_mw),
    F(gpu, UNSIGNED, power_limit_max_mw), F(gpu, LARGE, energy_mj), F(gpu, LARGE, nvlink_sent_kib),
    F(gpu, LARGE, nvlink_received_kib), F(gpu, UNSIGNED, clock_sm), F(gpu, UNSIGNED, clock_memory),
    F(gpu, UNSIGNED, clock_video), F(gpu, UNSIGNED, clock_sm_max),
    F(gpu, UNSIGNED, clock_memory_max), F(gpu, UNSIGNED, clock_video_max),
    F(gpu, UNSIGNED, clock_sm_locked_min), F(gpu, UNSIGNED, clock_sm_locked_max),
    F(gpu, UNSIGNED, clock_memory_locked_min), F(gpu, UNSIGNED, clock_memory_locked_max),
    F(gpu, LARGE, clock_event_reasons),
    F(gpu, UNSIGNED, performance_state), F(gpu, UNSIGNED, utilization), F(gpu, UNSIGNED, memory_utilization),
    F(gpu, UNSIGNED, encoder_utilization), F(gpu, UNSIGNED, decoder_utilization),
    F(gpu, UNSIGNED, pcie_sent_kib_s), F(gpu, UNSIGNED, pcie_received_kib_s), R(gpu, activity, activity_fields),
    F(gpu, UNSIGNED, persistence_mode), F(gpu, UNSIGNED, compute_mode), F(gpu, UNSIGNED, recovery_action),
    R(gpu, ecc, ecc_fields),
    R(gpu, remapped_rows, remapped_rows_fields), F(gpu, UNSIGNED, mig_capable), F(gpu, UNSIGNED, mig_enabled),
    F(gpu, UNSIGNED, mig_pending), L(gpu, "process", processes, process_count, MAX_PROCESSES, process_fields),
    L(gpu, "link", links, link_count, MAX_LINKS, link_fields), L(gpu, "mig", migs, mig_count, MAX_MIG, mig_fields),
    END_OF_TABLE};

static const struct field event_fields[] = {
    F(event, LARGE, sequence), F(event, UNSIGNED, gpu), F(event, UNSIGNED, xid),
    F(event, UNSIGNED, gpu_instance), F(event, UNSIGNED, compute_instance), END_OF_TABLE};

static const struct field failure_fields[] = {
    S(failure, function), F(failure, SIGNED, gpu), F(failure, SIGNED, code), S(failure, driver), END_OF_TABLE};

static const struct field limit_fields[] = {
    F(memory_limit, UNSIGNED, gpu), F(memory_limit, LARGE, cgroup), S(memory_limit, path),
    F(memory_limit, LARGE, soft), F(memory_limit, LARGE, hard), END_OF_TABLE};

static const struct field machine_fields[] = {
    S(machine, driver_version), F(machine, UNSIGNED, cuda_version), S(machine, module),
    S(machine, module_version), S(machine, devices),
    S(machine, sys_root), S(machine, dev_root), S(machine, cgroup_root), F(machine, UNSIGNED, call_cost_us),
    F(machine, UNSIGNED, memory_limits_from),
    F(machine, LARGE, mig_load), F(machine, LARGE, settings_load),
    L(machine, "gpu", gpus, gpu_count, MAX_GPUS, gpu_fields),
    L(machine, "event", events, event_count, MAX_EVENTS, event_fields),
    L(machine, "failure", failures, failure_count, MAX_FAILURES, failure_fields),
    L(machine, "limit", limits, limit_count, MAX_LIMITS, limit_fields), END_OF_TABLE};

struct span {
    const char *start;
    size_t length;
};

static bool span_equals(struct span span, const char *word)
{
    return strlen(word) == span.length && memcmp(word, span.start, span.length) == 0;
}

/* Cuts the span up to `separator` off the front of `rest`; without a separator, all of it. */
static struct span cut(struct span *rest, char separator)
{
    const char *end = memchr(rest->start, separator, rest->length);
    struct span head = {rest->start, end ? (size_t)(end - rest->start) : rest->length};
    size_t used = head.length + (end ? 1 : 0);
    rest->start += used;
    rest->length -= used;
    return head;
}

static bool parse_digits(struct span text, uint64_t limit, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned)(text.start[i] - '0');
        if (digit > 9 || digit > limit || *value > (limit - digit) / 10)
            return false;
        *value = *value * 10 + digit;
    }
    return text.length > 0;
}

static bool store_signed(int *target, struct span value)
{
    bool negative = value.length > 0 && value.start[0] == '-';
    struct span digits = {value.start + negative, value.length - negative};
    uint64_t number;
    if (!parse_digits(digits, INT32_MAX, &number))
        return false;
    *target = negative ? -(int)number : (int)number;
    return true;
}

static bool store(const struct field *field, char *record, struct span value)
{
    uint64_t number;
    switch (field->kind) {
    case UNSIGNED:
        if (!parse_digits(value, UINT32_MAX, &number))
            return false;
        *(unsigned *)(void *)(record + field->offset) = (unsigned)number;
        return true;
    case LARGE:
        return parse_digits(value, UINT64_MAX, (uint64_t *)(void *)(record + field->offset));
    case SIGNED:
        return store_signed((int *)(void *)(record + field->offset), value);
    case TEXT:
        if (value.length >= field->size || memchr(value.start, '\0', value.length))
            return false;
        memcpy(record + field->offset, value.start, value.length);
        record[field->offset + value.length] = '\0';
        return true;
    default:
        return false;
    }
}

/* Splits "link12" into the list's field and position 12, and makes room for it if it is the next one. */
static char *list_element(const struct field *field, char *record, struct span word)
{
    size_t name = strlen(field->name);
    uint64_t position;
    size_t *count = (size_t *)(void *)(record + field->count_offset);
    if (word.length <= name || memcmp(word.start, field->name, name) != 0)
        return NULL;
    struct span digits = {word.start + name, word.length - name};
    if (!parse_digits(digits, field->limit - 1, &position) || position > *count)
        return NULL;
    if (position == *count)
        ++*count;
    return record + field->offset + position * field->size;
}

static bool assign(const struct field *fields, char *record, struct span path, struct span value)
{
    struct span word = cut(&path, '.');
    for (const struct field *field = fields; field->kind != END; field++) {
        char *element;
        if (field->kind == LIST && (element = list_element(field, record, word)))
            return assign(field->fields, element, path, value);
        if (!span_equals(word, field->name) || field->kind == LIST)
            continue;
        if (field->kind == RECORD)
            return assign(field->fields, record + field->offset, path, value);
        return path.length == 0 && store(field, record, value);
    }
    return false;
}

size_t machine_parse(struct machine *machine, const char *text, size_t length)
{
    struct span rest = {text, length};
    for (size_t number = 1; rest.length > 0; number++) {
        struct span value = cut(&rest, '\n');
        struct span path = cut(&value, '=');
        bool has_value = path.start + path.length < value.start;
        if (path.length == 0 && !has_value)
            continue;
        if (!has_value || !assign(machine_fields, (char *)machine, path, value))
            return number;
    }
    return 0;
}

/* For tests of the parser: the answer of machine_parse for a text. */
__attribute__((visibility("default"))) size_t gpusim_check(const char *text, size_t length);

size_t gpusim_check(const char *text, size_t length)
{
    struct machine *machine = calloc(1, sizeof(*machine));
    size_t line = machine ? machine_parse(machine, text, length) : 1;
    free(machine);
    return line;
}
