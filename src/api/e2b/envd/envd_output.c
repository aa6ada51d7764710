/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/envd_output.h"
#include "http/client/connect.h"

#include <signal.h>

void output_start(struct buf *b, uint32_t pid)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "{\"event\":{\"start\":{\"pid\":%u}}}", pid);
    connect_append(b, 0, str_n(text, (size_t)n));
}

void output_data(struct buf *b, enum wire_channel channel, struct str bytes)
{
    static const struct str begin[] = {
        [WIRE_STDOUT] = STR("{\"event\":{\"data\":{\"stdout\":\""),
        [WIRE_STDERR] = STR("{\"event\":{\"data\":{\"stderr\":\""),
        [WIRE_PTY] = STR("{\"event\":{\"data\":{\"pty\":\""),
    };
    const struct str end = STR("\"}}}");
    uint8_t head[CONNECT_HEAD];

    assert(channel == WIRE_STDOUT || channel == WIRE_STDERR || channel == WIRE_PTY);
    connect_head(head, 0, begin[channel].n + (bytes.n + 2) / 3 * 4 + end.n);
    buf_append(b, head, sizeof(head));
    buf_append_str(b, begin[channel]);
    buf_append_base64(b, bytes);
    buf_append_str(b, end);
}

static void signal_text(uint32_t signal, char *ret_text, size_t size)
{
    static const char *const names[] = {
        [SIGHUP] = "hangup",
        [SIGINT] = "interrupt",
        [SIGQUIT] = "quit",
        [SIGILL] = "illegal instruction",
        [SIGTRAP] = "trace/breakpoint trap",
        [SIGABRT] = "aborted",
        [SIGBUS] = "bus error",
        [SIGFPE] = "floating point exception",
        [SIGKILL] = "killed",
        [SIGUSR1] = "user defined signal 1",
        [SIGSEGV] = "segmentation fault",
        [SIGUSR2] = "user defined signal 2",
        [SIGPIPE] = "broken pipe",
        [SIGALRM] = "alarm clock",
        [SIGTERM] = "terminated",
    };
    if (signal < ARRAY_SIZE(names) && names[signal])
        snprintf(ret_text, size, "signal: %s", names[signal]);
    else
        snprintf(ret_text, size, "signal: signal %u", signal);
}

void output_exit(struct buf *b, const struct exec_exit *exit)
{
    char text[256], status[64];
    int n;
    if (exit->signaled) {
        signal_text(exit->code, status, sizeof(status));
        n = snprintf(text, sizeof(text), "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"%s\",\"error\":\"%s\"}}}",
                     status, status);
    } else if (exit->code) {
        n = snprintf(
            text, sizeof(text),
            "{\"event\":{\"end\":{\"exitCode\":%u,\"exited\":true,\"status\":\"exit status %u\",\"error\":\"exit "
            "status %u\"}}}",
            exit->code, exit->code, exit->code);
    } else {
        n = snprintf(text, sizeof(text), "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
    }
    connect_append(b, 0, str_n(text, (size_t)n));
}
