/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/environment.h"
#include "base/mem.h"

#include <stdlib.h>

enum { TERMINAL_NAME_MAX = 64 };

int environment_take(struct context *ctx, void *env, const char *flag UNUSED, const char *text)
{
    json_t **to = env;
    ssize_t at = str_find_char(str_of(text), '=');
    AUTO_FREE char *name = at < 0 ? mem_strdup(text) : mem_strndup(text, (size_t)at);
    const char *value = at < 0 ? getenv(text) : text + at + 1;
    if (!*name)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "-e %s: a name is missing", text);
    if (!*to)
        *to = json_object();
    if (value && json_object_set_new(*to, name, json_string(value)) < 0)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "-e %s: names and values must be UTF-8", name);
    return 0;
}

/* Entries of terminfo are named so; whatever else it is, programs would look for a file of that name. */
static bool is_terminal_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._";
    size_t n = text ? strspn(text, allowed) : 0;
    return n > 0 && n <= TERMINAL_NAME_MAX && text[n] == '\0' && text[0] != '.' && text[0] != '-';
}

json_t *environment_of_terminal(const json_t *env, const char *term)
{
    json_t *all = env ? json_copy((json_t *)env) : json_object();
    (void)json_setdefault(all, "TERM", json_string(is_terminal_name(term) ? term : "xterm"));
    return all;
}
