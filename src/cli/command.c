/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "base/buf.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "cli/habits.h"
#include "cli/help.h"
#include "config/config.h"
#include "config/units.h"

#include <getopt.h>
#include <limits.h>
#include <unistd.h>

enum { FLAGS_MAX = 32, LONG = 256 }; /* LONG + its place: what getopt calls a long one */

enum { COMMON_JSON, COMMON_HELP, COMMON_HOST, COMMON_TENANT }; /* the last two are for those alone that ask a service */
static const struct flag common_flags[] = {
    {0, "json", NULL, "Writes the result to stdout as JSON, for programs; errors go to stderr as JSON."},
    {'h', "help", NULL, "Shows this text."},
    {0, "host", "ADDRESS",
     "Where the service is: unix:/path, host:port or https://host:port. Default: COVE_HOST, else the local socket."},
    {0, "tenant", "NAME", "Acts in this tenant, on the machine itself. Default: COVE_TENANT, else in all."},
};

const struct flag *command_flag(const struct command *command, size_t i)
{
    if (i < command->n_flags)
        return &command->flags[i];
    i -= command->n_flags;
    return i < ARRAY_SIZE(common_flags) - 2 * command->is_local ? &common_flags[i] : NULL;
}

/* Its place; the last of all when there is none. */
static size_t find_flag(const struct command *command, int id)
{
    const struct flag *flag;
    size_t i = 0;
    while ((flag = command_flag(command, i)) && id != LONG + (int)i && !(id < LONG && flag->letter == id))
        i++;
    return i;
}

static void add_flag(const struct flag *flag, int id, struct option *option, char letters[], size_t *n_letters)
{
    *option = (struct option){flag->name, flag->argument ? required_argument : no_argument, NULL, id};
    if (flag->letter) {
        letters[(*n_letters)++] = flag->letter;
        if (flag->argument)
            letters[(*n_letters)++] = ':';
    }
}

struct command_options {
    struct option all[FLAGS_MAX + 1];
    char letters[2 * FLAGS_MAX + 3];
};

static void make_options(const struct command *command, struct command_options *o)
{
    const struct flag *flag;
    size_t n_letters = 0;
    assert(command->n_flags + ARRAY_SIZE(common_flags) <= FLAGS_MAX);
    *o = (struct command_options){0};
    if (command->flags_end_at_operand)
        o->letters[n_letters++] = '+';
    o->letters[n_letters++] = ':';
    for (size_t i = 0; (flag = command_flag(command, i)); i++)
        add_flag(flag, LONG + (int)i, &o->all[i], o->letters, &n_letters);
}

/* letter: 0 when it is a long one. */
static void unknown_option(struct context *ctx, int letter)
{
    const char *word = ctx->argv[optind - 1];
    const bool is_letter = letter && letter < LONG && !command_flag(ctx->command, find_flag(ctx->command, letter));
    const char one[] = {'-', (char)letter, '\0'};
    const char *habit = habit_of_option(ctx->command, is_letter ? one : word);
    const struct flag *flag;
    const char *bare = word + strspn(word, "-");
    const struct str name = str_n(bare, strcspn(bare, "="));
    if (habit)
        context_hint(ctx, "%s", habit);
    for (size_t i = 0; !habit && !is_letter && (flag = command_flag(ctx->command, i)); i++)
        if (habit_is_slip(name, flag->name))
            context_hint(ctx, "did you mean --%s?", flag->name);
    if (is_letter)
        (void)context_usage(ctx, "unknown option -%c", letter);
    else if (ctx->command->is_local && str_starts(str_of(word), STR("--host")))
        (void)context_usage(ctx, "it only works on this machine: there is no --host");
    else
        (void)context_usage(ctx, "unknown option %s", word);
}

/* The next flag of the command's own, and its value; 0: there are no more, or -1. */
static int next_flag(struct context *ctx, const struct flag **ret_flag)
{
    struct command_options o;
    const struct command *command = ctx->command;
    make_options(command, &o);
    opterr = 0;
    ctx->has_flags_left = true;
    for (int id; (id = getopt_long(ctx->argc, ctx->argv, o.letters, o.all, NULL)) != -1;) {
        size_t i = find_flag(command, id);
        if (id == ':' || id == '?') {
            if (id == ':')
                (void)context_usage(ctx, "%s needs a value", ctx->argv[optind - 1]);
            else
                unknown_option(ctx, optopt);
            return -1;
        }
        if (i < command->n_flags) {
            ctx->given |= 1U << i;
            *ret_flag = &command->flags[i];
            return 1;
        }
        switch (i - command->n_flags) {
        case COMMON_HELP:
            help_command(command, stdout);
            ctx->err.code = ERR_OK;
            return -1;
        case COMMON_JSON:
            ctx->json = true;
            break;
        case COMMON_HOST:
            ctx->host = optarg;
            break;
        default:
            ctx->tenant = optarg;
        }
    }
    ctx->has_flags_left = false;
    ctx->argi = optind;
    return 0;
}

static bool is_bare(const char *text)
{
    return *text && !text[strspn(text, "0123456789.")];
}

static int refuse_size(struct context *ctx, const char *flag, const char *text, uint64_t bytes, uint64_t least)
{
    char smallest[UNIT_TEXT_MAX];
    unit_format_size(least, smallest);
    if (bytes > INT64_MAX)
        return context_usage(ctx, "--%s %s: write a size such as 512M or 2GiB", flag, text);
    if (bytes == 0 || !is_bare(text))
        return context_usage(ctx, "--%s %s: the least is %s", flag, text, smallest);
    return context_usage(ctx, "--%s %s: a number alone counts bytes, and the least is %s; write %s%s", flag, text,
                         smallest, text, bytes << 20 < least ? "G" : "M");
}

/* STATUS_OK, or STATUS_USAGE having said what is wrong. */
static int flag_number(struct context *ctx, const struct flag *flag, const struct flag_into *into, const char *value,
                       uint64_t *ret_number)
{
    uint64_t number = 0;
    uint32_t milli = 0;
    int r = into->kind == FLAG_TIME   ? unit_parse_duration(str_of(value), &number)
            : into->kind == FLAG_SIZE ? unit_parse_size(str_of(value), &number)
            : into->kind == FLAG_CPUS ? unit_parse_cpus(str_of(value), &milli)
                                      : str_to_u64(str_of(value), &number);
    number = into->kind == FLAG_CPUS ? milli : number;
    *ret_number = number;
    if (r == 0 && number >= into->least && number <= (into->most ? into->most : (uint64_t)INT64_MAX))
        return STATUS_OK;
    return into->wanted ? context_usage(ctx, "--%s %s: write %s", flag->name, value, into->wanted)
                        : refuse_size(ctx, flag->name, value, r < 0 ? UINT64_MAX : number, into->least);
}

/* 0; -1 with ctx->err; STATUS_USAGE: it was said. */
static int flag_take(struct context *ctx, const struct flag *flag, const struct flag_into *into, const char *value)
{
    uint64_t number = 0;
    if (into->take)
        return into->take(ctx, into->arg, flag->name, value);
    if (into->kind != FLAG_PLAIN && flag_number(ctx, flag, into, value, &number) != STATUS_OK)
        return STATUS_USAGE;
    if (into->on)
        *into->on = true;
    else if (into->text)
        *into->text = value;
    else if (into->number)
        *into->number = number;
    else if (json_object_set_new(into->json, into->member ? into->member : flag->name,
                                 into->kind != FLAG_PLAIN ? json_integer((json_int_t)number)
                                 : value                  ? json_string(value)
                                                          : json_true()) < 0)
        return context_usage(ctx, "--%s must be UTF-8", flag->name);
    return 0;
}

int context_read(struct context *ctx, const struct flag_into into[])
{
    const struct flag *flag = NULL;
    int more, r = 0;
    while (r == 0 && (more = next_flag(ctx, &flag)) > 0) {
        const struct flag_into *to = into;
        while (to && to->name && *to->name && strcmp(to->name, flag->name) != 0)
            to++;
        assert(to && to->name);
        r = flag_take(ctx, flag, to, optarg);
    }
    if (r < 0)
        (void)context_fail(ctx, STATUS_USAGE);
    return r || more < 0 ? FLAGS_STOP : FLAGS_DONE;
}

int context_read_one(struct context *ctx, const struct flag_into into[])
{
    if (context_read(ctx, into) == FLAGS_STOP)
        return FLAGS_STOP;
    if (context_operands(ctx) == 1)
        return FLAGS_DONE;
    (void)context_one_sandbox(ctx, context_operands(ctx));
    return FLAGS_STOP;
}

int context_read_all(struct context *ctx, const struct flag_into into[])
{
    if (context_read(ctx, into) == FLAGS_STOP)
        return FLAGS_STOP;
    if (context_operands(ctx) == 0)
        return FLAGS_DONE;
    (void)context_usage(ctx, "%s: it takes no operand", ctx->argv[ctx->argi]);
    return FLAGS_STOP;
}

/* ---- forms of a command ---- */

/* Cuts the next "ls, tag: ..." off; false when it is no such thing. */
static bool next_forms(struct str *help, struct str *ret_forms)
{
    struct str part = *help, rest = STR_NULL;
    for (size_t i = 0; i + 1 < help->n; i++)
        if (help->p[i] == ';' && help->p[i + 1] == ' ') {
            part.n = i;
            rest = str_sub(*help, i + 2);
            break;
        }
    ssize_t colon = str_find_char(part, ':');
    if (colon <= 0)
        return false;
    for (ssize_t i = 0; i < colon; i++)
        if (!(part.p[i] >= 'a' && part.p[i] <= 'z') && part.p[i] != ',' && part.p[i] != ' ')
            return false;
    *ret_forms = str_n(part.p, (size_t)colon);
    *help = rest;
    return true;
}

static bool holds(struct str forms, const char *form)
{
    struct str one;
    while (str_split(&forms, ',', &one))
        if (str_eqc(str_trim(one), form))
            return true;
    return false;
}

int context_check_form(struct context *ctx, const char *form)
{
    for (size_t i = 0; i < ctx->command->n_flags; i++) {
        const struct flag *f = &ctx->command->flags[i];
        struct str help = str_of(f->help), forms;
        AUTO_BUF struct buf all = BUF_INIT(256);
        bool is_bound = false, goes = false;
        if (!(ctx->given & 1U << i))
            continue;
        while (help.p && next_forms(&help, &forms)) {
            goes |= holds(forms, form);
            buf_printf(&all, "%s%.*s", is_bound ? ", " : "", STR_ARG(forms));
            is_bound = true;
        }
        if (is_bound && !goes)
            return context_usage(ctx, "--%s goes with %.*s only", f->name, STR_ARG(buf_str(&all)));
    }
    return STATUS_OK;
}

/* None of the forms, or no word at all. */
static int refuse_word(struct context *ctx, const struct command_form forms[], size_t n)
{
    const char *word = context_operands(ctx) ? ctx->argv[ctx->argi] : NULL;
    AUTO_BUF struct buf words = BUF_INIT(256);
    for (size_t i = 0; i < n; i++)
        buf_printf(&words, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : word ? " and " : " or ", forms[i].word);
    return word ? context_usage(ctx, "there is %.*s, but no \"%.32s\"", STR_ARG(buf_str(&words)), word)
                : context_usage(ctx, "what to do? %.*s", STR_ARG(buf_str(&words)));
}

bool context_is_word(const char *given, const char *word)
{
    static const char *const same[][2] = {{"list", "ls"},   {"ls", "list"},       {"remove", "rm"},
                                          {"delete", "rm"}, {"remove", "revoke"}, {"delete", "revoke"},
                                          {"rm", "revoke"}, {"create", "build"},  {"exec", "run"}};
    bool is_same = strcmp(given, word) == 0;
    for (size_t i = 0; i < ARRAY_SIZE(same) && !is_same; i++)
        is_same = strcmp(given, same[i][0]) == 0 && strcmp(word, same[i][1]) == 0;
    return is_same;
}

int context_form(struct context *ctx, const struct command_form forms[], size_t n, void *options)
{
    size_t i = context_operands(ctx) ? 0 : n;
    while (i < n && !context_is_word(ctx->argv[ctx->argi], forms[i].word))
        i++;
    if (i == n)
        return refuse_word(ctx, forms, n);
    if (context_check_form(ctx, forms[i].word) != STATUS_OK)
        return STATUS_USAGE;
    ctx->argi++;
    int given = context_operands(ctx);
    if (given < forms[i].least || given > forms[i].most)
        return forms[i].wrong ? context_usage(ctx, "%s", forms[i].wrong) : context_one_sandbox(ctx, given);
    return forms[i].run(ctx, options);
}

int context_words_behind(const struct context *ctx)
{
    for (int i = 1; i < ctx->argc; i++)
        if (strcmp(ctx->argv[i], "--") == 0)
            return ctx->argc - i - 1;
    return -1;
}

/* A --json behind what is wrong says how that is to be told. */
static void look_for_json(struct context *ctx)
{
    struct command_options o;
    int id;
    make_options(ctx->command, &o);
    while ((id = getopt_long(ctx->argc, ctx->argv, o.letters, o.all, NULL)) != -1)
        ctx->json |= find_flag(ctx->command, id) == ctx->command->n_flags + COMMON_JSON;
    ctx->has_flags_left = false;
}

int context_exit(const struct context *ctx)
{
    return ctx->err.code == ERR_OK ? STATUS_OK : STATUS_USAGE;
}

static void print_error(const struct context *ctx)
{
    if (ctx->json) {
        AUTO_BUF struct buf b = BUF_INIT(8192);
        buf_printf(&b, "{\"error\":{\"code\":\"%s\",\"message\":", err_code_name(ctx->err.code));
        buf_append_json_string(&b, str_of(ctx->err.msg));
        if (*ctx->hint) {
            buf_append_cstr(&b, ",\"hint\":");
            buf_append_json_string(&b, str_of(ctx->hint));
        }
        buf_append_cstr(&b, "}}\n");
        (void)fwrite(buf_data(&b), 1, buf_len(&b), stderr);
        return;
    }
    terminal_line(stderr, "cove%s%s: %s", ctx->command ? " " : "", ctx->command ? ctx->command->name : "",
                  ctx->err.msg);
    if (*ctx->hint)
        terminal_line(stderr, "  %s", ctx->hint);
}

int context_fail(struct context *ctx, int status)
{
    if (ctx->has_flags_left)
        look_for_json(ctx);
    print_error(ctx);
    return status;
}

void context_hint(struct context *ctx, const char *fmt, ...)
{
    FORMAT_ARGS(ctx->hint, fmt);
}

int context_usage(struct context *ctx, const char *fmt, ...)
{
    FORMAT_ARGS(ctx->err.msg, fmt);
    ctx->err.code = ERR_INVALID_ARGUMENT;
    if (!*ctx->hint)
        context_hint(ctx, "'cove %s --help' shows how it is used", ctx->command->name);
    return context_fail(ctx, STATUS_USAGE);
}

int context_one_sandbox(struct context *ctx, int n)
{
    if (n == 0)
        context_hint(ctx, "'cove ls' lists the sandboxes; 'cove %s --help' shows how it is used", ctx->command->name);
    return context_usage(ctx, n ? "one sandbox at a time" : "the sandbox's id is missing");
}

int context_find_coved(struct context *ctx, char **ret_path)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return err_errno(&ctx->err, errno, "find the directory of this program");
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    *ret_path = mem_printf("%s/coved", self);
    if (access(*ret_path, X_OK) == 0)
        return 0;
    context_hint(ctx, "run cove %s on the machine of the service, where coved is installed", ctx->command->name);
    return err_errno(&ctx->err, errno, "run %s", *ret_path);
}

const struct config *context_config(struct context *ctx)
{
    if (!ctx->config && config_load(NULL, &ctx->config, &ctx->err) < 0)
        return NULL;
    return ctx->config;
}

const struct command *command_find(const struct command *const *commands, const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}
