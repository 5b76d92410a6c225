/* Small files: whole texts in, whole texts out. */
#include "nodesim.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Read a whole small file without trailing white space; return its length, or -1. */
int read_text(const char *path, char *text, size_t size)
{
    int fd = kernel_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    size_t length = 0;
    ssize_t got;
    while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    close(fd);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' '))
        length--;
    text[length] = '\0';
    return (int)length;
}

static void write_all(int fd, const char *format, va_list arguments)
{
    char text[TEXT_SIZE];
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length >= (int)sizeof text)
        length = sizeof text - 1;
    /* One write, then truncate: a concurrent reader never sees an empty file. */
    ssize_t written = length > 0 ? write(fd, text, (size_t)length) : 0;
    if (written >= 0 && ftruncate(fd, lseek(fd, 0, SEEK_CUR)) < 0) {
        /* A file that cannot be truncated is a pipe or a device, which need not be. */
    }
    close(fd);
}

void write_text(const char *path, const char *format, ...)
{
    int fd = kernel_open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_all(fd, format, arguments);
    va_end(arguments);
}

static void append(const char *path, const char *format, va_list arguments)
{
    int fd = kernel_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0)
        write_all(fd, format, arguments);
}

void append_text(const char *path, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append(path, format, arguments);
    va_end(arguments);
}

/* What the kernel would print: one line in /run/gpusim/kmsg. */
void log_kernel(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append(STATE_DIR "/kmsg", format, arguments);
    va_end(arguments);
}

void remove_tree(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char below[PATH_SIZE];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (unlink(below) < 0)
            remove_tree(below);
    }
    if (folder)
        closedir(folder);
    rmdir(path);
}

/* A decimal number at the start of the text; 0 if there is none. */
int parse_number(const char *text)
{
    int number = 0;
    while (*text >= '0' && *text <= '9' && number < 100000000)
        number = number * 10 + (*text++ - '0');
    return number;
}

/* The kernel's spelling of a module's name, up to a comma: nvidia-uvm is nvidia_uvm. */
void module_name(char *name, const char *text)
{
    size_t length = 0;
    for (; text[length] && text[length] != ',' && length < NAME_SIZE - 1; length++)
        name[length] = text[length] == '-' ? '_' : text[length];
    name[length] = '\0';
}
