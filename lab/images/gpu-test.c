/*
 * gpu-test VERB: acts like a GPU workload and reports what it sees.
 *
 *   list   print how many GPUs NVML has and their UUIDs, a line each; 1 and the reason when there is none
 *   hold   the same, then keep the GPUs' device nodes open until SIGTERM, as a program that computes does
 *   look   print what is visible of GPUs as JSON: device nodes, libraries, environment, UUIDs
 *   allocate MIB...   take memory of the first GPU through CUDA, print each number and CUDA's result, keep it until SIGTERM
 *
 * It finds NVML and CUDA as every program does: through the loader's cache of the container it runs in. It may be process 1.
 */
#define _GNU_SOURCE /* strerrorname_np */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NVML "libnvidia-ml.so.1"
#define CUDA "libcuda.so.1"
#define MAX_GPUS 64
#define UUID_SIZE 96 /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */

extern char **environ;

struct gpus {
    unsigned count;
    char uuids[MAX_GPUS][UUID_SIZE];
    char problem[512]; /* why there is none, else empty */
};

struct cuda {
    int (*init)(unsigned);
    int (*create)(void **, unsigned, int);
    int (*allocate)(uint64_t *, size_t);
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*uuid)(void *, char *, unsigned);
    const char *(*error)(int);
};

static bool is_holding; /* set before signals are handled: a signal is the normal end of holding */

/* Process 1 gets only the signals that it handles. */
static void end(int signal)
{
    _exit(is_holding ? 0 : 128 + signal);
}

static void __attribute__((format(printf, 2, 3))) explain(struct gpus *gpus, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(gpus->problem, sizeof gpus->problem, format, values);
    va_end(values);
}

struct symbol {
    void *place;
    const char *name;
};

static bool load(const char *library, const struct symbol *symbols, struct gpus *gpus)
{
    void *handle = dlopen(library, RTLD_NOW);
    for (const struct symbol *symbol = symbols; handle && symbol->name; symbol++) {
        void *found = dlsym(handle, symbol->name);
        if (!found) {
            handle = NULL;
            break;
        }
        memcpy(symbol->place, &found, sizeof found);
    }
    if (!handle)
        explain(gpus, "%s", dlerror());
    return handle != NULL;
}

static void ask(const struct nvml *nvml, struct gpus *gpus)
{
    unsigned count = 0;
    int status = nvml->count(&count);
    for (unsigned i = 0; !status && i < count && i < MAX_GPUS; i++) {
        void *device;
        status = nvml->handle(i, &device);
        if (!status)
            status = nvml->uuid(device, gpus->uuids[gpus->count], UUID_SIZE);
        if (!status)
            gpus->count++;
    }
    if (status)
        explain(gpus, "NVML: %s", nvml->error(status));
    else if (!count)
        explain(gpus, "NVML counts none");
}

static void find(struct gpus *gpus)
{
    struct nvml nvml;
    const struct symbol symbols[] = {
        {&nvml.init, "nvmlInit_v2"},
        {&nvml.shutdown, "nvmlShutdown"},
        {&nvml.count, "nvmlDeviceGetCount_v2"},
        {&nvml.handle, "nvmlDeviceGetHandleByIndex_v2"},
        {&nvml.uuid, "nvmlDeviceGetUUID"},
        {&nvml.error, "nvmlErrorString"},
        {NULL, NULL},
    };
    memset(gpus, 0, sizeof *gpus);
    if (!load(NVML, symbols, gpus))
        return;
    int status = nvml.init();
    if (status) {
        explain(gpus, "NVML: %s", nvml.error(status));
        return;
    }
    ask(&nvml, gpus);
    nvml.shutdown();
}

static int list(struct gpus *gpus)
{
    find(gpus);
    if (*gpus->problem) {
        fprintf(stderr, "gpu-test: no GPU: %s\n", gpus->problem);
        return 1;
    }
    printf("%u\n", gpus->count);
    for (unsigned i = 0; i < gpus->count; i++)
        printf("%s\n", gpus->uuids[i]);
    return 0;
}

/* Without O_NOCTTY a device node that is a terminal underneath could become ours. */
static int open_node(const char *path)
{
    return open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

static int hold(struct gpus *gpus)
{
    glob_t nodes;
    if (list(gpus))
        return 1;
    if (glob("/dev/nvidia[0-9]*", 0, NULL, &nodes)) {
        fprintf(stderr, "gpu-test: no device node /dev/nvidia0 or other\n");
        return 1;
    }
    for (size_t i = 0; i < nodes.gl_pathc; i++) {
        if (open_node(nodes.gl_pathv[i]) < 0) {
            fprintf(stderr, "gpu-test: %s: %s\n", nodes.gl_pathv[i], strerror(errno));
            return 1;
        }
        printf("opened %s\n", nodes.gl_pathv[i]);
    }
    for (unsigned i = 0; i < gpus->count; i++)
        printf("holding %s\n", gpus->uuids[i]);
    for (;;)
        pause();
}

static int allocate(char **sizes, struct gpus *gpus)
{
    struct cuda cuda;
    const struct symbol symbols[] = {
        {&cuda.init, "cuInit"}, {&cuda.create, "cuCtxCreate_v2"}, {&cuda.allocate, "cuMemAlloc_v2"}, {NULL, NULL}};
    void *context;
    if (!load(CUDA, symbols, gpus)) {
        fprintf(stderr, "gpu-test: %s\n", gpus->problem);
        return 1;
    }
    int result = cuda.init(0);
    if (!result)
        result = cuda.create(&context, 0, 0);
    if (result) {
        fprintf(stderr, "gpu-test: no context: %d\n", result);
        return 1;
    }
    for (; *sizes; sizes++) {
        uint64_t pointer;
        printf("%s %d\n", *sizes, cuda.allocate(&pointer, strtoul(*sizes, NULL, 10) << 20));
    }
    printf("allocated\n");
    for (;;)
        pause();
}

static void print_text(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (*c < ' ')
            printf("\\u%04x", *c);
        else
            putchar(*c);
    }
    putchar('"');
}

static void print_field(const char *name, const char *text)
{
    print_text(name);
    printf(": ");
    print_text(text);
}

static void look_at_nodes(void)
{
    glob_t nodes = {0};
    const char *separator = "";
    glob("/dev/nvidia*", 0, NULL, &nodes);
    glob("/dev/nvidia*/*", GLOB_APPEND, NULL, &nodes);
    printf("\"devices\": [");
    for (size_t i = 0; i < nodes.gl_pathc; i++) {
        struct stat status;
        if (stat(nodes.gl_pathv[i], &status) || !S_ISCHR(status.st_mode))
            continue;
        int descriptor = open_node(nodes.gl_pathv[i]);
        printf("%s{", separator);
        print_field("path", nodes.gl_pathv[i]);
        printf(", \"major\": %u, \"minor\": %u, ", major(status.st_rdev), minor(status.st_rdev));
        print_field("error", descriptor < 0 ? strerrorname_np(errno) : "");
        printf("}");
        separator = ", ";
        if (descriptor >= 0)
            close(descriptor);
    }
    printf("]");
    globfree(&nodes);
}

static void look_at_library(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY);
    print_field(name, library ? "" : dlerror());
}

static void look_at_environment(void)
{
    const char *separator = "";
    printf("\"environment\": {");
    for (char **variable = environ; *variable; variable++) {
        char *equals = strchr(*variable, '=');
        if (!equals || strncmp(*variable, "NVIDIA_", strlen("NVIDIA_")))
            continue;
        *equals = '\0';
        printf("%s", separator);
        print_field(*variable, equals + 1);
        *equals = '=';
        separator = ", ";
    }
    printf("}");
}

static int look(struct gpus *gpus)
{
    find(gpus);
    printf("{");
    look_at_nodes();
    printf(", \"libraries\": {");
    look_at_library(CUDA);
    printf(", ");
    look_at_library(NVML);
    printf("}, ");
    look_at_environment();
    printf(", \"gpus\": [");
    for (unsigned i = 0; i < gpus->count; i++) {
        printf("%s", i ? ", " : "");
        print_text(gpus->uuids[i]);
    }
    printf("], ");
    print_field("problem", gpus->problem);
    printf("}\n");
    return 0;
}

int main(int count, char **arguments)
{
    static struct gpus gpus;
    const struct sigaction ending = {.sa_handler = end};
    bool is_allocating = count > 2 && !strcmp(arguments[1], "allocate");
    const char *verb = count == 2 ? arguments[1] : "";
    is_holding = is_allocating || !strcmp(verb, "hold");
    if (sigaction(SIGTERM, &ending, NULL) || sigaction(SIGINT, &ending, NULL))
        return 1;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* log output must not wait for the end */
    if (is_allocating)
        return allocate(arguments + 2, &gpus);
    if (is_holding)
        return hold(&gpus);
    if (!strcmp(verb, "list"))
        return list(&gpus);
    if (!strcmp(verb, "look"))
        return look(&gpus);
    fprintf(stderr, "usage: gpu-test list|hold|look|allocate MIB...\n");
    return 2;
}
