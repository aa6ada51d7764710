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

#define AGENT_EXIT                                                                                                     \
    " N      its exit code; 0 also after detaching\n"                                                                  \
    " 128+N  it ended by signal N\n"                                                                                   \
    " 125    Cove failed, or what came out was refused; stderr says why\n"                                             \
    " 126    its command can't be executed\n"                                                                          \
    " 127    its command is not in the template\n"                                                                     \
    " 2      the command line is wrong"

const struct command cmd_agent = {
    .name = "agent",
    .summary = "run a coding agent on a copy of a repository",
    .synopsis = "NAME [OPTION]... [PATH] [-- ARGUMENT...]\n--list",
    .description =
        "Runs the agent of the kit NAME in an environment ('cove env') of the repository at PATH, by default the one "
        "here: on a copy of the last commit, at the same absolute path, and in the directory in which you are. It reaches its model, the package indexes "
        "that the kit names and what flags allow, and nothing else. Its key comes from the variable that the agent "
        "would read, or from the secret of that name ('cove secret'). The sandbox only gets a placeholder; the key "
        "is put into requests to the maker's hosts outside of it. A key from a variable is kept as the secret "
        "agent.VARIABLE.\n\nIts terminal is this one. Ctrl-P Ctrl-Q detaches from it, and 'cove attach NAME' comes "
        "back. When it ends, stderr says what it changed, which commands the service ran for it, which hosts were "
        "reached and refused, and how to review it. The same name again continues in the same copy; --name starts "
        "another beside it. The first start builds the kit's template.\n\nKits are YAML: template, memory, command, "
        "setup, env, allow, credentials, caches. /etc/cove/kits/NAME.yaml replaces the one that comes with Cove. A "
        "repository may add to it with .cove/kits/NAME.yaml in the commit, but hosts, credentials and caches only "
        "apply when a person allows them. Caches are volumes that the environments of one repository share.\n\nWith "
        "--json its output goes to stderr, and one object comes at its end: environment, sandbox, status, commits, "
        "changed, base, head, review, commands, reached, refused, and seq and hash of the last event.",
    .exit_status = AGENT_EXIT,
    .examples = "cove agent --list\n"
                "cove agent claude\n"
                "cove agent codex --name mend-login -- exec 'mend the login'\n"
                "cove agent claude --allow @pypi --allow docs.example.org:443 ~/project",
    .operands = "=claude codex gemini opencode aider shell|path",
    COMMAND_FLAGS(agent_flags),
    .run = run_agent,
};

const struct command cmd_shell = {
    .name = "shell",
    .summary = "open a shell on a copy of a repository",
    .synopsis = "[OPTION]... [PATH] [-- COMMAND [ARGUMENT]...]",
    .description =
        "The same as 'cove agent shell': a login shell in its own environment, which reaches only what flags allow. "
        "With a COMMAND the shell runs that and ends; if it begins with '-', it is options of bash.",
    .exit_status = AGENT_EXIT,
    .examples = "cove shell\n"
                "cove shell -- make test\n"
                "cove shell --allow @npm -- -c 'npm ci && npm test'",
    .operands = "path",
    COMMAND_FLAGS(shell_flags),
    .run = run_shell,
};

const struct command cmd_attach = {
    .name = "attach",
    .summary = "reconnect to a running agent",
    .synopsis = "NAME|ID",
    .description =
        "Connects this terminal to a running agent that you detached from with Ctrl-P Ctrl-Q, or whose terminal was "
        "lost, even after a restart of the service. NAME is an environment of the repository here, ID a sandbox. "
        "First comes the output since then, the last 256 KiB at most. Then it behaves as 'cove agent'.",
    .exit_status = AGENT_EXIT,
    .examples = "cove attach claude",
    .operands = "id",
    .run = run_attach,
};
