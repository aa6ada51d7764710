/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be started: checked, as a request to the agent, and for the record. */
#include "sandbox/exec/process.h"
#include "sandbox/network/network_life.h"

enum { ARGS_MAX = 32768, TEXT_MAX = 4095, TAG_MAX = 1024 };

static int exec_spec_check_text(const char *what, struct str s, size_t max, struct err *err)
{
    if (s.n > max || str_has_nul(s))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: %s", what, s.n > max ? "too long" : "holds a NUL byte");
    return 0;
}

int exec_spec_check(const struct exec_spec *spec, struct err *err)
{
    if (!spec->cmd.n)
        return err_set(err, ERR_INVALID_ARGUMENT, "no command");
    if (exec_spec_check_text("command", spec->cmd, TEXT_MAX, err) < 0 ||
        exec_spec_check_text("user", spec->user, TEXT_MAX, err) < 0 ||
        exec_spec_check_text("cwd", spec->cwd, TEXT_MAX, err) < 0 ||
        exec_spec_check_text("tag", spec->tag, TAG_MAX, err) < 0)
        return -1;
    if (spec->n_args > ARGS_MAX || spec->n_envs > ARGS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "too many arguments or variables");
    for (size_t i = 0; i < spec->n_args; i++)
        if (exec_spec_check_text("argument", spec->args[i], WIRE_PAYLOAD_MAX, err) < 0)
            return -1;
    for (size_t i = 0; i < spec->n_envs; i++) {
        if (!spec->envs[i].key.n || str_find_char(spec->envs[i].key, '=') >= 0 || str_has_nul(spec->envs[i].key))
            return err_set(err, ERR_INVALID_ARGUMENT, "an environment variable without a proper name");
        if (exec_spec_check_text("environment variable", spec->envs[i].value, WIRE_PAYLOAD_MAX, err) < 0)
            return -1;
    }
    return 0;
}

static bool has_env(const struct pair *envs, size_t n, struct str key)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(envs[i].key, key))
            return true;
    return false;
}

/* Those that nothing above them sets. Returns how many; b NULL: they are only counted. */
static uint32_t put_envs(struct buf *b, const struct exec_spec *spec, const struct sandbox_info *info)
{
    uint32_t n = 0;
    for (size_t i = 0; i < info->n_envs; i++) {
        if (has_env(spec->envs, spec->n_envs, info->envs[i].key))
            continue;
        n++;
        if (b) {
            wire_put_str(b, info->envs[i].key);
            wire_put_str(b, info->envs[i].value);
        }
    }
    return n;
}

static uint32_t put_network_envs(struct buf *b, const struct exec_spec *spec, const struct sandbox *sb, unsigned which)
{
    size_t n_all;
    uint32_t n = 0;
    const struct pair *all = network_envs(sb, which, &n_all);
    for (size_t i = 0; i < n_all; i++) {
        if (has_env(spec->envs, spec->n_envs, all[i].key) || has_env(sb->info.envs, sb->info.n_envs, all[i].key))
            continue;
        n++;
        if (b) {
            wire_put_str(b, all[i].key);
            wire_put_str(b, all[i].value);
        }
    }
    return n;
}

void exec_spec_put(struct buf *b, const struct sandbox *sb, const struct exec_spec *spec)
{
    wire_put_str(b, spec->cmd);
    wire_put_u32(b, (uint32_t)spec->n_args);
    for (size_t i = 0; i < spec->n_args; i++)
        wire_put_str(b, spec->args[i]);
    uint32_t n = (uint32_t)spec->n_envs;
    for (unsigned which = 0; which < 2; which++)
        n += put_network_envs(NULL, spec, sb, which);
    n += put_envs(NULL, spec, &sb->info);
    wire_put_u32(b, n);
    for (unsigned which = 0; which < 2; which++)
        (void)put_network_envs(b, spec, sb, which);
    (void)put_envs(b, spec, &sb->info);
    for (size_t i = 0; i < spec->n_envs; i++) {
        wire_put_str(b, spec->envs[i].key);
        wire_put_str(b, spec->envs[i].value);
    }
    wire_put_str(b, sandbox_user(sb, spec->user));
    wire_put_str(b, spec->cwd.n || !sb->workdir ? spec->cwd : str_of(sb->workdir));
    wire_put_str(b, spec->tag);
    wire_put_u8(b, (uint8_t)((spec->pty ? WIRE_EXEC_PTY : 0) | (spec->stdin_open ? WIRE_EXEC_STDIN : 0) |
                             (spec->tag.p ? WIRE_EXEC_TAG : 0)));
    wire_put_u16(b, spec->cols);
    wire_put_u16(b, spec->rows);
}

/* Arguments as they are, of the environment the names only: values are often secrets. */
void exec_spec_describe(const struct exec_spec *spec, struct event_data *d)
{
    enum { LIST_MAX = 4096 };
    AUTO_BUF struct buf args = BUF_INIT(2 * LIST_MAX);
    AUTO_BUF struct buf envs = BUF_INIT(2 * LIST_MAX);
    bool cut = false;
    event_data_str(d, "cmd", spec->cmd);
    (void)buf_append_char(&args, '[');
    for (size_t i = 0; i < spec->n_args && !cut; i++) {
        struct str arg = str_n(spec->args[i].p, MIN(spec->args[i].n, (size_t)1024));
        cut = arg.n < spec->args[i].n || buf_len(&args) + arg.n > LIST_MAX;
        if (i)
            (void)buf_append_char(&args, ',');
        (void)buf_append_json_string(&args, arg);
    }
    (void)buf_append_char(&args, ']');
    if (!buf_error(&args))
        event_data_json(d, "args", buf_str(&args));
    EVENT_DATA_PUT(d, DATA_FLAG("args_cut", cut || buf_error(&args)));
    (void)buf_append_char(&envs, '[');
    for (size_t i = 0; i < spec->n_envs && buf_len(&envs) < LIST_MAX; i++) {
        if (i)
            (void)buf_append_char(&envs, ',');
        (void)buf_append_json_string(&envs, str_n(spec->envs[i].key.p, MIN(spec->envs[i].key.n, (size_t)256)));
    }
    (void)buf_append_char(&envs, ']');
    if (spec->n_envs && !buf_error(&envs))
        event_data_json(d, "envs", buf_str(&envs));
    if (spec->cwd.n)
        event_data_str(d, "cwd", spec->cwd);
    if (spec->user.n)
        event_data_str(d, "user", spec->user);
    EVENT_DATA_PUT(d, DATA_SOME("tag", spec->tag), DATA_FLAG("pty", spec->pty));
    if (spec->pty && spec->cols && spec->rows) {
        EVENT_DATA_PUT(d, DATA_U64("cols", spec->cols), DATA_U64("rows", spec->rows));
    }
    EVENT_DATA_PUT(d, DATA_COUNT("timeout_ms", spec->timeout_ms));
}
