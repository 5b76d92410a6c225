/* Metadata of a .ko file: the .modinfo section of a relocatable ELF file, "key=value" strings. */
#include "nodesim.h"

#include <elf.h>
#include <string.h>

/* The bytes of the section called `wanted`; NULL if there is none, or the file is malformed. */
static const char *find_section(const unsigned char *image, size_t size, const char *wanted, size_t *length)
{
    const Elf64_Ehdr *header = (const void *)image;
    if (size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_type != ET_REL)
        return NULL;
    if (header->e_shoff > size || header->e_shnum > (size - header->e_shoff) / sizeof(Elf64_Shdr))
        return NULL;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    if (header->e_shstrndx >= header->e_shnum)
        return NULL;
    const Elf64_Shdr *names = &sections[header->e_shstrndx];
    if (names->sh_offset > size || names->sh_size > size - names->sh_offset)
        return NULL;
    for (int i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr *section = &sections[i];
        size_t room = strlen(wanted) + 1;
        if (section->sh_name > names->sh_size || names->sh_size - section->sh_name < room)
            continue;
        if (memcmp(image + names->sh_offset + section->sh_name, wanted, room))
            continue;
        if (section->sh_offset > size || section->sh_size > size - section->sh_offset)
            return NULL;
        *length = section->sh_size;
        return (const char *)image + section->sh_offset;
    }
    return NULL;
}

static const char *find_value(const char *strings, size_t length, const char *key)
{
    const char *end = strings + length;
    size_t key_length = strlen(key);
    while (strings < end) {
        size_t room = (size_t)(end - strings), string_length = strnlen(strings, room);
        if (string_length == room)
            break; /* not terminated */
        if (string_length > key_length && !memcmp(strings, key, key_length) && strings[key_length] == '=')
            return strings + key_length + 1;
        strings += string_length + 1;
    }
    return "";
}

/* Return 0, or -1 for a file that is not a kernel module. */
int read_modinfo(const unsigned char *image, size_t size, struct modinfo *info)
{
    size_t length = 0;
    const char *strings = find_section(image, size, ".modinfo", &length);
    if (!strings)
        return -1;
    *info = (struct modinfo){
        .name = find_value(strings, length, "name"),
        .version = find_value(strings, length, "version"),
        .srcversion = find_value(strings, length, "srcversion"),
        .vermagic = find_value(strings, length, "vermagic"),
        .depends = find_value(strings, length, "depends"),
        .license = find_value(strings, length, "license"),
        .image_size = size,
    };
    return *info->name ? 0 : -1;
}
