/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

enum { WIDTH = 79, INDENT = 7 };

/* Fills lines; a line that begins with a blank is kept as it is, an empty one is a paragraph's end. */
static void print_text(const char *text, int indent, FILE *out)
{
    struct str rest = str_of(text), line;
    int column = 0;
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
                column += fprintf(out, " %.*s", STR_ARG(word));
        }
    }
    if (column > 0)
        (void)fputc('\n', out);
}

static void print_lines(const char *prefix, const char *text, FILE *out)
{
    struct str rest = str_of(text), line;
    while (str_split(&rest, '\n', &line))
        (void)fprintf(out, "%*s%s%s%.*s\n", INDENT, "", prefix, *prefix && line.n ? " " : "", STR_ARG(line));
}

static void print_flag(const struct flag *flag, FILE *out)
{
    (void)fprintf(out, "%*s", INDENT, "");
    if (flag->letter)
        (void)fprintf(out, "-%c, ", flag->letter);
    (void)fprintf(out, "--%s%s%s\n", flag->name, flag->argument ? " " : "", flag->argument ? flag->argument : "");
    print_text(flag->help, INDENT + 8, out);
}

void help_command(const struct command *command, FILE *out)
{
    (void)fprintf(out, "NAME\n%*scove %s - %s\n\nSYNOPSIS\n", INDENT, "", command->name, command->summary);
    char prefix[64];
    (void)snprintf(prefix, sizeof(prefix), "cove %s", command->name);
    print_lines(prefix, command->synopsis, out);
    (void)fputs("\nDESCRIPTION\n", out);
    print_text(command->description, INDENT, out);
    (void)fputs("\nOPTIONS\n", out);
    const struct flag *flag;
    for (size_t i = 0; (flag = command_flag(command, i)); i++)
        print_flag(flag, out);
    (void)fputs("\nEXIT STATUS\n", out);
    print_text(command->exit_status ? command->exit_status
                                    : " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
               INDENT, out);
    (void)fputs("\nEXAMPLES\n", out);
    print_lines("", command->examples, out);
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

void help_overview(const struct command *const *commands, FILE *out)
{
    (void)fputs("cove runs commands in sandboxes.\n\n"
                "  cove run -- python3 -c 'print(1 + 1)'\n\n"
                "Commands:\n",
                out);
    for (size_t i = 0; commands[i]; i++)
        (void)fprintf(out, "  %-12s%s\n", commands[i]->name, commands[i]->summary);
    (void)fputs(
        "\n'cove COMMAND --help' tells more. Environment: COVE_HOST (where the service is), COVE_API_KEY, COVE_TENANT,\nCOVE_CONFIG.\n"
        "Exit codes: 0 it worked, 1 it did not, 2 the command line is wrong, those of the command for run and exec;\n"
        "'cove help exit-codes' has them all.\n",
        out);
}
