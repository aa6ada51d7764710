/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent/agent.h"
#include "cli/cmd/commands.h"

#define AGENT_FLAGS                                                                                                    \
    {0, "name", "NAME", "The environment's name. Default: the kit's."},                                                \
        {0, "from", "REVISION", "The commit that its copy starts from. Default: HEAD."},                               \
        {0, "profile", "NAME", "Takes this profile of .cove/env.yaml."},                                               \
        {0, "template", "NAME", "What the sandbox is made from. Default: the kit's."},                                 \
        {0, "mount", "PATH[:ro|:copy]",                                                                                \
         "Mounts this directory at the same path; ro: to read; copy: a copy of it as it is now, "                      \
         "also of a file. May be given several times. A directory must be "                                            \
         "allowed by 'volumes.host' in the service's configuration; a copy need not be."},                             \
        NET_FLAGS, NET_SECRET_FLAG,                                                                                    \
    {                                                                                                                  \
        0, "trust-repository", NULL,                                                                                   \
            "Gives what the repository's .cove/kits and .cove/env.yaml want beyond the kit: hosts, "                   \
            "credentials, caches. Without it a person is asked at the terminal."                                       \
    }

static const struct flag agent_flags[] = {
    {0, "list", NULL, "Lists the kits."},
    AGENT_FLAGS,
};
static const struct flag shell_flags[] = {AGENT_FLAGS};

static int agent_take_mount(struct context *ctx, void *options, const char *flag UNUSED, const char *value)
{
    struct agent_options *o = options;
    if (o->n_mounts == AGENT_MOUNTS_MAX)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "--mount: %d at most", AGENT_MOUNTS_MAX);
    o->mounts[o->n_mounts++] = value;
    return 0;
}

static int agent_parse_and_run(struct context *ctx, struct agent_options *o)
{
    const int rest = MAX(context_words_behind(ctx), 0);
    bool lists = false;
    const struct flag_into into[] = {{"list", .on = &lists},
                                     {"name", .text = &o->name},
                                     {"from", .text = &o->from},
                                     {"profile", .text = &o->profile},
                                     {"template", .text = &o->template},
                                     {"trust-repository", .on = &o->trusts},
                                     {"mount", .take = agent_take_mount, .arg = o},
                                     {"", .take = net_flags_take, .arg = &o->net}};
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    int n = context_operands(ctx) - rest;
    char *const *words = ctx->argv + ctx->argi;
    if (lists)
        return n + rest ? context_usage(ctx, "--list takes no operand") : agent_list(ctx);
    if (!o->kit && n == 0)
        return context_usage(ctx, "which agent? 'cove agent --list' shows those there are");
    o->rest = words + n;
    if (!o->kit && n--)
        o->kit = *words++;
    if (n > 1)
        return context_usage(ctx, "%s: one operand too many; the agent's own arguments come after --", words[1]);
    o->path = n ? *words : NULL;
    return agent_run(ctx, o);
}

static int agent(struct context *ctx, const char *kit)
{
    struct agent_options o = {.kit = kit, .takes_command = kit != NULL};
    int status = agent_parse_and_run(ctx, &o);
    net_flags_fini(&o.net);
    return status;
}

static int run_agent(struct context *ctx)
{
    return agent(ctx, NULL);
}

static int run_shell(struct context *ctx)
{
    return agent(ctx, "shell");
}

static int run_attach(struct context *ctx)
{
    if (context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 1)
        return context_usage(ctx, context_operands(ctx) ? "one at a time" : "which environment or sandbox?");
    return agent_attach(ctx, ctx->argv[ctx->argi]);
}

const struct command cmd_agent = {
    .name = "agent",
    .summary = "run a coding agent on a copy of a repository",
    .text = &text_agent,
    .operands = "=claude codex gemini opencode aider shell|path",
    COMMAND_FLAGS(agent_flags),
    .run = run_agent,
};

const struct command cmd_shell = {
    .name = "shell",
    .summary = "open a shell on a copy of a repository",
    .text = &text_shell,
    .operands = "path",
    COMMAND_FLAGS(shell_flags),
    .run = run_shell,
};

const struct command cmd_attach = {
    .name = "attach",
    .summary = "reconnect to a running agent",
    .text = &text_attach,
    .operands = "id",
    .run = run_attach,
};
