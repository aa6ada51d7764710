/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/alive.h"
#include "base/mem.h"
#include "config/config.h"

static int say_ended(struct context *ctx, const char *id)
{
    context_hint(ctx, "what is still to be read of it is its log: cove log %s", id);
    return err_set(&ctx->err, ERR_NOT_FOUND, "sandbox %s has ended, and its files are gone", id);
}

static int say_paused(struct context *ctx, const char *id)
{
    context_hint(ctx, "'cove resume %s' continues it", id);
    return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "sandbox %s is paused", id);
}

/* Its log is kept for longer than it is remembered itself. */
static bool has_log(const struct context *ctx, const char *id)
{
    struct context scratch = {.command = ctx->command, .host = ctx->host, .json = ctx->json};
    AUTO(service_close) struct service *s = service_open(&scratch);
    AUTO_FREE char *target = service_target(id, "/events?from=1");
    bool found = s && service_stream(s, "GET", target) == 0;
    config_free(scratch.config);
    return found;
}

int alive_check(struct context *ctx, struct service *s, const char *id, bool may_be_paused)
{
    AUTO_FREE char *target = service_target(id, "%s", "");
    AUTO_JSON json_t *sandbox = NULL;
    if (service_call(s, "GET", target, NULL, NULL, &sandbox) < 0)
        return ctx->err.code == ERR_NOT_FOUND && has_log(ctx, id) ? say_ended(ctx, id) : -1;
    const char *state = service_text(sandbox, "state");
    if (json_is_string(json_object_get(sandbox, "end_cause")) || strcmp(state, "stopping") == 0)
        return say_ended(ctx, id);
    return !may_be_paused && strcmp(state, "paused") == 0 ? say_paused(ctx, id) : 0;
}

void alive_explain_pause(struct context *ctx, const char *id, const char *doing)
{
    AUTO_JSON json_t *sandbox = service_look_aside(ctx, id);
    if (str_word(str_of(service_text(sandbox, "state")), "paused pausing") < 0)
        return;
    context_hint(ctx, "'cove resume %s' continues it; then run this again", id);
    (void)err_set(&ctx->err, ERR_ABORTED, "sandbox %s was paused while %s", id, doing);
}
