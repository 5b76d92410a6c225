/* The process of a pod's sandbox: holds its namespaces, reaps orphans in them, ends on a signal. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal)
{
    (void)signal;
    _exit(0);
}

static void reap(int signal)
{
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void)
{
    const struct sigaction ending = {.sa_handler = end};
    const struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGTERM, &ending, NULL) || sigaction(SIGINT, &ending, NULL) || sigaction(SIGCHLD, &reaping, NULL))
        return 1;
    for (;;)
        pause();
}
