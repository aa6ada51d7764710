/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/process_spec.h"

#include <signal.h>

/* proto3 JSON allows numbers as strings. */
static int get_u32(const json_t *object, const char *name, uint32_t *ret_value, struct err *err)
{
    json_t *value = json_field(object, name);
    int64_t number = 0;
    uint64_t parsed;
    int r;
    if (json_is_string(value)) {
        if (str_to_u64(json_str(value), &parsed) < 0 || parsed > UINT32_MAX)
            return err_set(err, ERR_INVALID_ARGUMENT, "field \"%s\" must be an unsigned 32-bit integer", name);
        *ret_value = (uint32_t)parsed;
        return 1;
    }
    r = json_get_int(object, name, 0, UINT32_MAX, &number, err);
    if (r > 0)
        *ret_value = (uint32_t)number;
    return r;
}

int process_size_read(const json_t *message, uint16_t *ret_cols, uint16_t *ret_rows, struct err *err)
{
    json_t *pty = NULL, *size = NULL;
    uint32_t cols = 0, rows = 0;
    int r = json_get_object(message, "pty", &pty, err);
    if (r <= 0)
        return r;
    if (json_get_object(pty, "size", &size, err) < 0)
        return -1;
    if (size && (get_u32(size, "cols", &cols, err) < 0 || get_u32(size, "rows", &rows, err) < 0))
        return -1;
    *ret_cols = (uint16_t)cols;
    *ret_rows = (uint16_t)rows;
    return 1;
}

int process_start_read(const json_t *message, struct arena *arena, struct exec_spec *ret_spec, struct err *err)
{
    struct exec_spec spec = {.cmd = STR(""), .user = STR(""), .cwd = STR(""), .stdin_open = true};
    json_t *process = NULL;
    int r;
    if (JSON_WANTS_OF(message, arena, err, JSON_WANT_OBJECT("process", &process), JSON_WANT_STR("tag", &spec.tag),
                      JSON_WANT_BOOL("stdin", &spec.stdin_open)) < 0)
        return -1;
    if (process && JSON_WANTS_OF(process, arena, err, JSON_WANT_STR("cmd", &spec.cmd), JSON_WANT_STR("cwd", &spec.cwd),
                                 JSON_WANT_STRS("args", &spec.args, &spec.n_args),
                                 JSON_WANT_PAIRS("envs", &spec.envs, &spec.n_envs)) < 0)
        return -1;
    r = process_size_read(message, &spec.cols, &spec.rows, err);
    spec.pty = r > 0;
    if (r < 0)
        return -1;
    *ret_spec = spec;
    return 0;
}

int process_select_read(const json_t *message, struct exec_select *ret_select, struct err *err)
{
    struct exec_select select = {0};
    json_t *process = NULL;
    int pid, tag;
    if (json_get_object(message, "process", &process, err) < 0)
        return -1;
    pid = process ? get_u32(process, "pid", &select.pid, err) : 0;
    if (pid < 0)
        return -1;
    tag = process ? json_get_str(process, "tag", &select.tag, err) : 0;
    if (tag < 0)
        return -1;
    if (pid && tag)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "unmarshal message: the process is selected by pid or by tag, not by both");
    if (!pid && !tag)
        return err_set(err, ERR_UNIMPLEMENTED, "the message selects no process");
    select.by_tag = tag > 0;
    *ret_select = select;
    return 0;
}

int process_input_read(const json_t *message, bool *ret_pty, struct str *ret_base64, struct err *err)
{
    struct str text = STR_NULL, pty = STR_NULL;
    json_t *input = NULL;
    int has_text, has_pty;
    if (json_get_object(message, "input", &input, err) < 0)
        return -1;
    has_text = input ? json_get_str(input, "stdin", &text, err) : 0;
    if (has_text < 0)
        return -1;
    has_pty = input ? json_get_str(input, "pty", &pty, err) : 0;
    if (has_pty < 0)
        return -1;
    if (has_text && has_pty)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "unmarshal message: the input is for stdin or for the pty, not for both");
    if (!has_text && !has_pty)
        return err_set(err, ERR_UNIMPLEMENTED, "the message holds no input");
    *ret_pty = has_pty > 0;
    *ret_base64 = has_pty ? pty : text;
    return 0;
}

int process_signal_read(const json_t *message, int *ret_signal, struct err *err)
{
    json_t *value = json_field(message, "signal");
    struct str name = STR("SIGNAL_UNSPECIFIED");
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        if (number != SIGTERM && number != SIGKILL)
            return err_set(err, ERR_UNIMPLEMENTED, "invalid signal: %lld", (long long)number);
        *ret_signal = (int)number;
        return 0;
    }
    if (json_get_str(message, "signal", &name, err) < 0)
        return -1;
    if (str_eq(name, STR("SIGNAL_SIGTERM")))
        *ret_signal = SIGTERM;
    else if (str_eq(name, STR("SIGNAL_SIGKILL")))
        *ret_signal = SIGKILL;
    else
        return err_set(err, ERR_UNIMPLEMENTED, "invalid signal: SIGNAL_UNSPECIFIED");
    return 0;
}
