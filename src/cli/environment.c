/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/environment.h"

#include "base/mem.h"

#include <stdlib.h>

int environment_add(struct context *ctx, const char *text, json_t **env)
{
    ssize_t at = str_find_char(str_of(text), '=');
    AUTO_FREE char *name = at < 0 ? mem_strdup(text) : mem_strndup(text, (size_t)at);
    const char *value = at < 0 ? getenv(text) : text + at + 1;
    if (!*name)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "-e %s: a name is missing", text);
    if (!*env)
        *env = json_object();
    if (value && json_object_set_new(*env, name, json_string(value)) < 0)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "-e %s: names and values must be UTF-8", name);
    return 0;
}
