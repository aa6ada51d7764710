/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/exec_input.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "cli/service.h"

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
    static const char readers[] = "bash cat dash irb node perl python python3 ruby sh zsh";
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    size_t n = 1;
    for (; argv[n]; n++)
        if (strcmp(argv[n], "-") == 0)
            return true;
    return n == 1 && str_word(str_of(name), readers) >= 0;
}

bool exec_is_file_here(const char *word)
{
    struct stat st;
    return *word && *word != '/' && *word != '-' && stat(word, &st) == 0 && S_ISREG(st.st_mode);
}

/* Also when nobody can be asked: false. */
static bool is_missing_inside(struct context *ctx, const struct exec_request *request, const char *word)
{
    struct context scratch = *ctx;
    AUTO(service_close) struct service *s = service_open(&scratch);
    AUTO_FREE char *path = mem_printf("%s%s%s", request->cwd ? request->cwd : "", request->cwd ? "/" : "", word);
    AUTO_FREE char *target = service_files(request->id, "files", path, request->user);
    ctx->config = scratch.config;
    return s && target && service_stream(s, "GET", target) < 0 && scratch.err.code == ERR_NOT_FOUND;
}

void exec_explain_files(struct context *ctx, const struct exec_request *request)
{
    for (char *const *word = request->argv + 1; *word; word++) {
        if (!exec_is_file_here(*word) || !is_missing_inside(ctx, request, *word))
            continue;
        terminal_line(stderr, "cove %s: %s is here, but not in the sandbox", ctx->command->name, *word);
        terminal_line(stderr, "  pipe it in (python3 - < FILE), copy it ('cove cp', or tar as in 'cove run --help'), "
                              "or use 'cove here'");
        return;
    }
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
