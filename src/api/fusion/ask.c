/* SPDX-License-Identifier: Apache-2.0 */
/* A run as JSON: what is asked, and what is answered. */
#include "api/fusion/handlers.h"
#include "base/mem.h"

enum { MEMORY_LEAST_MB = 16 };

/* ---- what is asked ---- */

static int ask_read_time(const json_t *body, const char *name, double otherwise, uint64_t *ret_ms, struct err *err)
{
    json_t *value = json_object_get(body, name);
    double s = !value || json_is_null(value) ? otherwise : json_number_value(value);
    if ((value && !json_is_null(value) && !json_is_number(value)) || !(s >= 0) || s * 1000 > FUSION_TIME_MAX_MS)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: seconds are a number from 0 to %d", name,
                       FUSION_TIME_MAX_MS / 1000);
    *ret_ms = (uint64_t)(s * 1000 + 0.999);
    return 0;
}

int fusion_run_times(const json_t *body, double compile_s, double run_s, struct fusion_run *r, struct err *err)
{
    return ask_read_time(body, "compile_timeout", compile_s, &r->compile_ms, err) < 0
               ? -1
               : ask_read_time(body, "run_timeout", run_s, &r->run_ms, err);
}

/* Base64, or null for a file that isn't there. */
static int ask_check_files(json_t *files, struct err *err)
{
    JSON_FOREACH_MEMBER (name, value, files)
        if (!json_is_string(value) && !json_is_null(value))
            return err_set(err, ERR_INVALID_ARGUMENT, "files: the content of '%.64s' must be a string", name);
    return 0;
}

static int ask_check_strings(const json_t *list, const char *name, struct err *err)
{
    JSON_FOREACH (value, list)
        if (!json_is_string(value))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s must be a list of strings", name);
    return 0;
}

static int ask_read_cells(const json_t *body, struct fusion_run *r, struct err *err)
{
    struct str kernel = STR("python3");
    if (json_get_array(body, "cells", &r->cells, err) < 0 || json_get_str(body, "kernel", &kernel, err) < 0 ||
        ask_read_time(body, "cell_timeout", 0, &r->cell_ms, err) < 0 ||
        ask_read_time(body, "total_timeout", 45, &r->run_ms, err) < 0)
        return -1;
    if (!r->cells || json_array_size(r->cells) > FUSION_CELLS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "cells must be a list of at most %d", FUSION_CELLS_MAX);
    if (!str_eqc(kernel, "python3"))
        return err_set(err, ERR_INVALID_ARGUMENT, "kernel is python3");
    return ask_check_strings(r->cells, "cells", err);
}

static int ask_read_program(const json_t *body, struct fusion_run *r, struct err *err)
{
    struct str language = STR("");
    if (json_get_str(body, "code", &r->code, err) < 0 || json_get_str(body, "language", &language, err) < 0 ||
        json_get_str(body, "stdin", &r->stdin_text, err) < 0 || fusion_run_times(body, 10, 10, r, err) < 0)
        return -1;
    r->language = fusion_language_find(language);
    if (!r->code.p)
        return err_set(err, ERR_INVALID_ARGUMENT, "code is missing");
    if (!r->language)
        return err_set(err, ERR_INVALID_ARGUMENT, "language: '%.*s' is not supported", STR_ARG_MAX(language, 32));
    return 0;
}

bool fusion_run_read(struct call *c, const json_t *body, bool is_cells, struct fusion_run *r)
{
    int64_t memory = -1;
    struct err err;
    if ((is_cells ? ask_read_cells(body, r, &err) : ask_read_program(body, r, &err)) == 0 &&
        json_get_int(body, "memory_limit_MB", -1, INT32_MAX, &memory, &err) >= 0 &&
        json_get_object(body, "files", &r->files, &err) >= 0 &&
        json_get_array(body, "fetch_files", &r->fetch, &err) >= 0 && ask_check_files(r->files, &err) == 0 &&
        ask_check_strings(r->fetch, "fetch_files", &err) == 0) {
        r->memory_bytes = memory > 0 ? (uint64_t)MAX(memory, (int64_t)MEMORY_LEAST_MB) << 20 : 0;
        return true;
    }
    return call_fail_err(c, &err);
}

/* ---- what is answered ---- */

bool fusion_result_is_bad(const struct fusion_result *result)
{
    return result->status && (!result->has_code || result->code);
}

bool fusion_run_succeeded(const struct fusion_run *r)
{
    return !r->message[0] && !fusion_result_is_bad(&r->compiled) && !fusion_result_is_bad(&r->ran);
}

/* Escaped, it may be six times as long: what does not fit is tried again with half of it. */
static void ask_append_output(struct buf *b, const char *name, struct str text, size_t most)
{
    AUTO_BUF struct buf escaped = BUF_INIT(most);
    while (buf_append_json_string(&escaped, text) < 0 && text.n) {
        buf_clear(&escaped);
        text.n /= 2;
    }
    buf_printf(b, ",\"%s\":", name);
    (void)buf_append_str(b, buf_str(&escaped));
}

static void ask_append_result(struct buf *b, const char *name, const struct fusion_result *result, size_t most)
{
    buf_printf(b, ",\"%s\":", name);
    if (!result->status) {
        buf_append_cstr(b, "null");
        return;
    }
    buf_printf(b, "{\"status\":\"%s\",\"execution_time\":%.6f,\"return_code\":", result->status,
               (double)result->took / USEC_PER_SEC);
    if (result->has_code)
        buf_printf(b, "%d", result->code);
    else
        buf_append_cstr(b, "null");
    ask_append_output(b, "stdout", buf_str(&result->out), most);
    ask_append_output(b, "stderr", buf_str(&result->err), most);
    buf_append_char(b, '}');
}

static void ask_append_json(struct buf *b, const char *name, const json_t *value)
{
    AUTO_FREE char *text = json_dumps(value, JSON_COMPACT);
    buf_printf(b, ",\"%s\":", name);
    buf_append_cstr(b, text ? text : "null");
}

void fusion_run_append(struct buf *b, const struct fusion_run *r, size_t most)
{
    buf_printf(b, "{\"status\":\"%s\",\"message\":",
               r->message[0]             ? "SandboxError"
               : fusion_run_succeeded(r) ? "Success"
                                         : "Failed");
    buf_append_json_string(b, str_of(r->message));
    if (r->language) {
        ask_append_result(b, "compile_result", &r->compiled, most);
        ask_append_result(b, "run_result", &r->ran, most);
    } else {
        ask_append_result(b, "driver", &r->ran, most);
        (void)buf_append_cstr(b, ",\"cells\":[");
        (void)buf_append_str(b, buf_str(&r->told));
        (void)buf_append_char(b, ']');
    }
    buf_printf(b, r->sandbox[0] ? ",\"executor_pod_name\":\"%s\"" : ",\"executor_pod_name\":null", r->sandbox);
    ask_append_json(b, "files", r->fetched);
    buf_append_char(b, '}');
}
