/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/exec_input.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Something that a program here would read from: no terminal, and not /dev/null. */
static bool is_pipe_or_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

int exec_choose_stdin(struct context *ctx, struct exec_request *request, enum exec_stdin choice)
{
    if (request->has_pty && isatty(STDIN_FILENO) != 1) {
        context_hint(ctx, "leave -t out: what is piped in is read by the command");
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "-t needs a terminal, and standard input is not one");
    }
    if (request->has_pty && choice == EXEC_STDIN_NEVER)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "-n and -t exclude each other");
    request->has_stdin = request->has_pty || choice == EXEC_STDIN_ALWAYS ||
                         (choice == EXEC_STDIN_BY_KIND && is_pipe_or_file(STDIN_FILENO));
    return 0;
}

/* Without arguments, or told to by "-", it reads its standard input. */
static bool reads_stdin(char *const *argv)
{
    static const char *const readers[] = {"bash",   "cat",     "dash", "irb", "node", "perl",
                                          "python", "python3", "ruby", "sh",  "zsh"};
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    size_t n = 1;
    for (; argv[n]; n++)
        if (strcmp(argv[n], "-") == 0)
            return true;
    for (size_t i = 0; n == 1 && i < ARRAY_SIZE(readers); i++)
        if (strcmp(name, readers[i]) == 0)
            return true;
    return false;
}

void exec_explain_silence(const struct context *ctx, const struct exec_request *request,
                          const struct exec_result *result)
{
    if (request->has_stdin || result->wrote || result->signaled || result->code || isatty(STDIN_FILENO) != 1 ||
        !reads_stdin(request->argv))
        return;
    (void)fprintf(stderr,
                  "cove %s: the command had nothing to read: a terminal is connected only when asked for\n"
                  "  -it gives it a terminal, -i its lines alone; what is piped in is read without either\n",
                  ctx->command->name);
}

int exec_take_stdin(struct context *ctx UNUSED, void *arg, const char *flag, const char *value UNUSED)
{
    enum exec_stdin *choice = arg;
    *choice = *flag == 'i' ? EXEC_STDIN_ALWAYS : EXEC_STDIN_NEVER;
    return 0;
}
