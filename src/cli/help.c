/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

enum { WIDTH = 100, INDENT = 7, HELP_COLUMN = 36 };

/* Fills lines; a line that begins with a blank is kept as it is, an empty one is a paragraph's end. */
static void print_text_at(const char *text, int indent, int column, FILE *out)
{
    struct str rest = str_of(text), line;
    bool begins = column > 0; /* a line that holds nothing of the text yet */
    while (str_split(&rest, '\n', &line)) {
        if (line.n == 0 || line.p[0] == ' ') {
            if (column > 0)
                (void)fputc('\n', out);
            column = 0;
            (void)fprintf(out, "%*s%.*s\n", line.n ? indent : 0, "", STR_ARG(line));
            continue;
        }
        struct str word;
        while (str_split(&line, ' ', &word)) {
            if (word.n == 0)
                continue;
            if (column > 0 && column + 1 + (int)word.n > WIDTH) {
                (void)fputc('\n', out);
                column = 0;
            }
            if (column == 0)
                column = fprintf(out, "%*s%.*s", indent, "", STR_ARG(word));
            else
                column += fprintf(out, "%s%.*s", begins ? "" : " ", STR_ARG(word));
            begins = false;
        }
    }
    if (column > 0)
        (void)fputc('\n', out);
}

static void help_print_text(const char *text, int indent, FILE *out)
{
    print_text_at(text, indent, 0, out);
}

static void help_print_lines(const char *prefix, const char *text, FILE *out)
{
    struct str rest = str_of(text), line;
    while (str_split(&rest, '\n', &line))
        (void)fprintf(out, "%*s%s%s%.*s\n", INDENT, "", prefix, *prefix && line.n ? " " : "", STR_ARG(line));
}

/* The help begins behind the name where there is room. */
static void print_flag(const struct flag *flag, FILE *out)
{
    char head[64];
    int n = snprintf(head, sizeof(head), "%*s%c%c%s--%s%s%s", INDENT, "", flag->letter ? '-' : ' ',
                     flag->letter ? flag->letter : ' ', flag->letter ? ", " : "  ", flag->name,
                     flag->argument ? " " : "", flag->argument ? flag->argument : "");
    (void)fputs(head, out);
    if (n + 2 > HELP_COLUMN) {
        (void)fputc('\n', out);
        n = 0;
    }
    (void)fprintf(out, "%*s", HELP_COLUMN - n, "");
    print_text_at(flag->help, HELP_COLUMN, HELP_COLUMN, out);
}

/* The title of the group that this flag begins. */
static bool begins_group(const struct command *command, const struct flag *flag, struct str *ret_title)
{
    struct str all = str_of(command->flag_groups), line, name;
    while (str_split(&all, '\n', &line)) {
        *ret_title = line;
        if (str_split(ret_title, ' ', &name) && str_eqc(name, flag->name))
            return true;
    }
    return false;
}

/* What all commands have comes last. */
static void print_flags(const struct command *command, FILE *out)
{
    const struct flag *flag;
    struct str title;
    const bool is_grouped = command->flag_groups;
    if (!is_grouped)
        (void)fputs("\nOPTIONS\n", out);
    for (size_t i = 0; (flag = command_flag(command, i)); i++) {
        if (is_grouped && i == command->n_flags)
            (void)fputs("\nOPTIONS: EVERY COMMAND\n", out);
        else if (is_grouped && begins_group(command, flag, &title))
            (void)fprintf(out, "\nOPTIONS: %.*s\n", STR_ARG(title));
        print_flag(flag, out);
    }
}

void help_command(const struct command *command, FILE *out)
{
    (void)fprintf(out, "NAME\n%*scove %s - %s\n\nSYNOPSIS\n", INDENT, "", command->name, command->summary);
    char prefix[64];
    (void)snprintf(prefix, sizeof(prefix), "cove %s", command->name);
    help_print_lines(prefix, command->synopsis, out);
    (void)fputs("\nEXAMPLES\n", out);
    help_print_lines("", command->examples, out);
    (void)fputs("\nDESCRIPTION\n", out);
    help_print_text(command->description, INDENT, out);
    print_flags(command, out);
    (void)fputs("\nEXIT STATUS\n", out);
    help_print_text(command->exit_status
                        ? command->exit_status
                        : " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
                    INDENT, out);
}

static const char exit_codes[] =
    "Exit codes of cove:\n\n"
    "    0      it worked; policy check: the request would be allowed; log --verify: intact\n"
    "    1      it did not, and stderr says why and what to do next; policy check: the\n"
    "           request would be denied; domain set: clients would not get through\n"
    "    2      the command line is wrong: an unknown option or command, a value that\n"
    "           can't be (--memory, --timeout, --allow, --deny, --net, --policy, --secret),\n"
    "           operands too few or too many. Nothing was done\n"
    "\n"
    "of 'cove run' and 'cove exec', which end as the command does that they run:\n\n"
    "    N      the command's own exit code\n"
    "    128+N  the command ended by signal N; 141: who read its output left\n"
    "    124    run: the sandbox's time (--timeout) was up\n"
    "    125    Cove failed, not the command: no service, no such sandbox or template, a\n"
    "           limit, a sandbox that ended under the command; policy check, too\n"
    "    126    the command was found but can't be executed\n"
    "    127    the command was not found\n"
    "\n"
    "With --json an error is one object on stderr: {\"error\":{\"code\",\"message\",\"hint\"}}.\n";

void help_exit_codes(FILE *out)
{
    (void)fputs(exit_codes, out);
}

static const struct help_group {
    const char *title;
    const char *names; /* as they are listed, a blank around each */
} groups[] = {
    {"Run", " run agent shell attach env here exec ls ps stats cp diff url rm docker mcp eval "},
    {"Look back", " logs log net events audit evidence replay why "},
    {"Lifetime and state", " timeout pause resume snapshot fork rewind volume "},
    {"Network and secrets", " policy secret "},
    {"The guard", " guard approvals approve deny "},
    {"Templates", " template warm "},
    {"The service", " reload key tenant domain pool gc doctor version "},
    {"Help", " help completion "},
};

static bool is_in_group(const struct help_group *g, const char *name)
{
    char word[32];
    (void)snprintf(word, sizeof(word), " %s ", name);
    return strstr(g->names, word);
}

static void help_print_command(const struct command *c, FILE *out)
{
    (void)fprintf(out, "  %-12s%s\n", c->name, c->summary);
}

static void print_group(const struct help_group *g, const struct command *const *commands, FILE *out)
{
    struct str names = str_of(g->names), name;
    (void)fprintf(out, "%s:\n", g->title);
    while (str_split(&names, ' ', &name))
        for (size_t i = 0; commands[i]; i++)
            if (str_eqc(name, commands[i]->name))
                help_print_command(commands[i], out);
    (void)fputc('\n', out);
}

void help_overview(const struct command *const *commands, FILE *out)
{
    (void)fputs("cove runs commands in sandboxes.\n\n"
                "  cove run -- python3 -c 'print(1 + 1)'    one command, in a sandbox of its own\n"
                "  cove run --keep -- true                  a sandbox that stays, and its id\n"
                "  cove exec -it ID -- bash                 a terminal in it\n\n",
                out);
    for (size_t g = 0; g < ARRAY_SIZE(groups); g++)
        print_group(&groups[g], commands, out);
    for (size_t i = 0; commands[i]; i++) { /* of which nobody thought above */
        bool is_listed = false;
        for (size_t g = 0; g < ARRAY_SIZE(groups); g++)
            is_listed |= is_in_group(&groups[g], commands[i]->name);
        if (!is_listed)
            help_print_command(commands[i], out);
    }
    (void)fputs(
        "'cove COMMAND --help' explains a command. Environment: COVE_HOST (where the service is), COVE_API_KEY,\n"
        "COVE_TENANT, COVE_CONFIG. Exit codes: 0 it worked, 1 it did not, 2 the command line is wrong; run and\n"
        "exec end as their command does. 'cove help exit-codes' has them all.\n",
        out);
}
