/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client/docker_names.h"
#include "base/mem.h"
#include "base/str.h"

#include <ctype.h>

char *docker_template(const char *image)
{
    static const struct str standard[] = {STR("docker.io/"), STR("library/")};
    struct str rest = str_of(image);
    for (size_t i = 0; i < ARRAY_SIZE(standard); i++)
        if (str_starts(rest, standard[i]))
            rest = str_sub(rest, standard[i].n);
    char *name = mem_strndup(rest.p, rest.n), *slash = strrchr(name, '/'), *tag = strchr(slash ? slash : name, ':');
    for (char *c = name; *c; c++)
        if (c != tag && !isalnum((unsigned char)*c) && *c != '-' && *c != '_' && !(*c == '.' && tag && c > tag))
            *c = '-';
    if (tag && strcmp(tag, ":latest") == 0)
        *tag = '\0';
    return name;
}
