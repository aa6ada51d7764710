/* SPDX-License-Identifier: Apache-2.0 */
#include "api/opensandbox/handlers.h"
#include "http/websocket.h"

#include <signal.h>

enum { SIZE_MAX_CELLS = 10000 };

/* A record is its kind, the length of what follows in four bytes, and that. */
static void pty_record_put(struct buf *in, enum pty_record kind, const void *data, size_t n)
{
    uint32_t length = (uint32_t)n;
    buf_append_char(in, (char)kind);
    buf_append(in, &length, sizeof(length));
    buf_append(in, data, n);
}

bool pty_record_take(struct str *in, int *ret_kind, struct str *ret_data)
{
    uint32_t length;
    if (in->n < 1 + sizeof(length))
        return false;
    memcpy(&length, in->p + 1, sizeof(length));
    *ret_kind = (uint8_t)in->p[0];
    *ret_data = str_n(in->p + 1 + sizeof(length), length);
    *in = str_sub(*in, 1 + sizeof(length) + length);
    return true;
}

static void pty_message_signal(struct str name, bool is_pipe, struct buf *in)
{
    static const struct {
        const char *name;
        char signal, key; /* which a terminal turns into that signal, for whatever is in its foreground */
    } signals[] = {{"SIGINT", SIGINT, 3},   {"SIGTERM", SIGTERM, 0},  {"SIGKILL", SIGKILL, 0},
                   {"SIGHUP", SIGHUP, 0},   {"SIGQUIT", SIGQUIT, 28}, {"SIGUSR1", SIGUSR1, 0},
                   {"SIGUSR2", SIGUSR2, 0}, {"SIGTSTP", SIGTSTP, 26}, {"SIGCONT", SIGCONT, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (str_eqc(name, signals[i].name) && signals[i].key && !is_pipe)
            pty_record_put(in, PTY_RECORD_STDIN, &signals[i].key, 1);
        else if (str_eqc(name, signals[i].name))
            pty_record_put(in, PTY_RECORD_SIGNAL, &signals[i].signal, 1);
}

enum pty_message pty_message_read(bool is_text, struct str message, bool is_pipe, struct buf *in, struct err *err)
{
    struct str type = STR(""), data = STR(""), name = STR("");
    AUTO_JSON json_t *json = NULL;
    int64_t cols = 0, rows = 0;
    if (!is_text && message.n && message.p[0] != PTY_FRAME_STDIN) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "binary frames must begin with a 0, and text must be a JSON object");
        return PTY_MESSAGE_WRONG;
    }
    if (!is_text) {
        if (message.n > 1)
            pty_record_put(in, PTY_RECORD_STDIN, message.p + 1, message.n - 1);
        return PTY_MESSAGE_TAKEN;
    }
    if (json_read_object(message, false, &json, err) < 0 || json_get_str(json, "type", &type, err) < 0 ||
        json_get_str(json, "data", &data, err) < 0 || json_get_str(json, "signal", &name, err) < 0 ||
        json_get_int(json, "cols", 0, SIZE_MAX_CELLS, &cols, err) < 0 ||
        json_get_int(json, "rows", 0, SIZE_MAX_CELLS, &rows, err) < 0)
        return PTY_MESSAGE_WRONG;
    if (str_eqc(type, "ping"))
        return PTY_MESSAGE_PING;
    if (str_eqc(type, "stdin")) {
        if (data.n)
            pty_record_put(in, PTY_RECORD_STDIN, data.p, data.n);
    } else if (str_eqc(type, "resize")) {
        if (cols && rows)
            pty_record_put(in, PTY_RECORD_RESIZE, (uint16_t[]){(uint16_t)cols, (uint16_t)rows}, 2 * sizeof(uint16_t));
    } else if (str_eqc(type, "signal")) {
        pty_message_signal(name, is_pipe, in);
    } else {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "a frame must be stdin, resize, signal or ping");
        return PTY_MESSAGE_WRONG;
    }
    return PTY_MESSAGE_TAKEN;
}

void pty_message_replay(struct buf *b, struct str kept, uint64_t written, uint64_t since)
{
    uint64_t first = written - kept.n, from = MIN(MAX(since, first), written);
    char head[9] = {PTY_FRAME_REPLAY};
    for (size_t i = 0; i < 8; i++)
        head[1 + i] = (char)(from >> (56 - 8 * i));
    if (from < written)
        websocket_append_binary(b, str_n(head, sizeof(head)), str_sub(kept, (size_t)(from - first)));
}
