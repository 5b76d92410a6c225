/* Stores the machine's text, and notices changes.
 *
 * A region of STATE_SIZE bytes: header, text, zeros. It is the file named by GPUSIM_STATE, or else the last
 * STATE_SIZE bytes of the library's own file, so that whoever mounts the library mounts its machine. Writers work in
 * place (lab/nvml/state.py): generation odd, text, header with the next even generation.
 */
#ifndef GPUSIM_STATE_H
#define GPUSIM_STATE_H

#include "machine.h"

#include <stdbool.h>

enum { STATE_SIZE = 256 * 1024, STATE_HEADER_SIZE = 64 };

struct state_header {
    char magic[8]; /* "GPUSIM1\n" */
    uint64_t generation;
    uint32_t length, adler32;
};

/* The library's own file with links resolved ("" when that fails). */
const char *state_library_file(void);

void state_open(void);
void state_close(void);

/* The machine as last written in full; NULL when there never was one. Valid until the next call. */
const struct machine *state_machine(void);

/* Adds lines of "path=value" to the machine, where a later value of a path counts; false where it cannot be written. */
bool state_append(const char *lines);

/* Replaces the top-level lines that begin with `prefix` by those that `render` makes of the machine as it is at that
 * moment (malloc'ed; NULL: nothing is changed). One writer at a time. False where it cannot be written. The machine of
 * an earlier state_machine() is gone afterwards. */
typedef char *(*state_renderer)(const struct machine *machine, const void *argument);
bool state_replace(const char *prefix, state_renderer render, const void *argument);

/* A descriptor that can be polled for reading when the region has been written, -1 where the kernel has none to give.
 * Belongs to the caller. Writes by way of another mount of an overlay do not show: look now and then all the same. */
int state_watch(void);

#endif
