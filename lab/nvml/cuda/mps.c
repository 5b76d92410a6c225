#define _GNU_SOURCE
#include "mps.h"

#include "../src/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_SIZE = 4096 };

static char limits[ANSWER_SIZE]; /* " UUID=900M UUID=…" */

static int connected(const char *pipe)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", pipe);
    if (length < 0 || (size_t)length >= sizeof(address.sun_path))
        return -1;
    int control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (control >= 0 && connect(control, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(control);
        return -1;
    }
    return control;
}

void mps_connect(void)
{
    static const char hello[] = "client\n"; /* the daemon knows from the kernel who it is */
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int control = pipe ? connected(pipe) : -1;
    if (control < 0)
        return;
    size_t length = 0;
    ssize_t got = send(control, hello, sizeof(hello) - 1, MSG_NOSIGNAL);
    while (got > 0 && length < sizeof(limits) - 1 && !memchr(limits, '\n', length)) {
        got = read(control, limits + length, sizeof(limits) - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    close(control);
}

uint64_t mps_limit(const char *gpu_uuid)
{
    char wanted[TEXT_SIZE + 3];
    snprintf(wanted, sizeof(wanted), " %s=", gpu_uuid);
    const char *found = strstr(limits, wanted);
    return found ? strtoull(found + strlen(wanted), NULL, 10) << 20 : UINT64_MAX;
}
