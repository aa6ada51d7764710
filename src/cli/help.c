/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

extern const char script_exit_codes[]; /* src/cli/help/exit-codes.txt */

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
    help_print_lines(prefix, command->text->synopsis, out);
    (void)fputs("\nEXAMPLES\n", out);
    help_print_lines("", command->text->examples, out);
    (void)fputs("\nDESCRIPTION\n", out);
    help_print_text(command->text->description, INDENT, out);
    print_flags(command, out);
    (void)fputs("\nEXIT STATUS\n", out);
    help_print_text(command->text->exit_status
                        ? command->text->exit_status
                        : " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
                    INDENT, out);
}

void help_exit_codes(FILE *out)
{
    (void)fputs(script_exit_codes, out);
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
