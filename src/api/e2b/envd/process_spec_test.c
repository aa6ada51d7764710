/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static json_t *json(const char *text)
{
    json_t *value = NULL;
    struct err err;
    assert_int_equal(json_read_object(str_of(text), false, &value, &err), 0);
    return value;
}

static void a_start_request_is_understood(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *run =
        json("{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"ls\"],\"envs\":{\"A\":\"b\"},"
             "\"cwd\":\"/tmp\"},\"stdin\":false,\"tag\":\"\"}");
    AUTO_JSON json_t *pty =
        json("{\"process\":{\"cmd\":\"sh\",\"cwd\":null},\"pty\":{\"size\":{\"cols\":80,\"rows\":\"24\"}}}");
    AUTO_JSON json_t *wrong = json("{\"process\":{\"cmd\":7}}");
    AUTO_JSON json_t *empty = json("{}");
    struct exec_spec spec;
    struct err err;
    (void)state;
    assert_int_equal(process_start_read(run, &arena, &spec, &err), 0);
    assert_true(str_eqc(spec.cmd, "/bin/bash"));
    assert_int_equal(spec.n_args, 3);
    assert_true(str_eqc(spec.args[2], "ls"));
    assert_true(str_eqc(spec.envs[0].key, "A"));
    assert_true(str_eqc(spec.cwd, "/tmp"));
    assert_false(spec.stdin_open);
    assert_false(spec.pty);
    assert_non_null(spec.tag.p);

    assert_int_equal(process_start_read(pty, &arena, &spec, &err), 0);
    assert_true(spec.pty);
    assert_true(spec.stdin_open);
    assert_int_equal(spec.cols, 80);
    assert_int_equal(spec.rows, 24);
    assert_int_equal(spec.cwd.n, 0);
    assert_null(spec.tag.p);

    assert_int_equal(process_start_read(empty, &arena, &spec, &err), 0);
    assert_int_equal(spec.cmd.n, 0);
    assert_int_equal(process_start_read(wrong, &arena, &spec, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
}

static void selects(const char *text, int expected, bool by_tag, uint32_t pid, enum err_code code)
{
    AUTO_JSON json_t *message = json(text);
    struct exec_select which = {0};
    struct err err;
    assert_int_equal(process_select_read(message, &which, &err), expected);
    if (expected < 0) {
        assert_int_equal(err.code, code);
        return;
    }
    assert_int_equal(which.by_tag, by_tag);
    assert_int_equal(which.pid, pid);
}

static void a_process_is_selected_by_one_thing(void **state)
{
    (void)state;
    selects("{\"process\":{\"pid\":12}}", 0, false, 12, 0);
    selects("{\"process\":{\"pid\":\"12\"}}", 0, false, 12, 0);
    selects("{\"process\":{\"tag\":\"x\"}}", 0, true, 0, 0);
    selects("{\"process\":{\"pid\":null,\"tag\":\"\"}}", 0, true, 0, 0);
    selects("{\"process\":{\"pid\":1,\"tag\":\"x\"}}", -1, false, 0, ERR_INVALID_ARGUMENT);
    selects("{\"process\":{\"pid\":-1}}", -1, false, 0, ERR_INVALID_ARGUMENT);
    selects("{\"process\":{\"pid\":4294967296}}", -1, false, 0, ERR_INVALID_ARGUMENT);
    selects("{\"process\":{}}", -1, false, 0, ERR_UNIMPLEMENTED);
    selects("{}", -1, false, 0, ERR_UNIMPLEMENTED);
    selects("{\"process\":[]}", -1, false, 0, ERR_INVALID_ARGUMENT);
}

static void input_and_signals(void **state)
{
    AUTO_JSON json_t *text = json("{\"input\":{\"stdin\":\"aGk=\"}}"), *pty = json("{\"input\":{\"pty\":\"\"}}");
    AUTO_JSON json_t *both = json("{\"input\":{\"stdin\":\"\",\"pty\":\"\"}}"), *none = json("{\"input\":{}}");
    AUTO_JSON json_t *kill = json("{\"signal\":\"SIGNAL_SIGKILL\"}"), *number = json("{\"signal\":15}");
    AUTO_JSON json_t *other = json("{\"signal\":2}"), *unknown = json("{\"signal\":\"SIGNAL_SIGHUP\"}");
    struct str base64;
    bool is_pty;
    int signal;
    struct err err;
    (void)state;
    assert_int_equal(process_input_read(text, &is_pty, &base64, &err), 0);
    assert_false(is_pty);
    assert_true(str_eqc(base64, "aGk="));
    assert_int_equal(process_input_read(pty, &is_pty, &base64, &err), 0);
    assert_true(is_pty);
    assert_int_equal(process_input_read(both, &is_pty, &base64, &err), -1);
    assert_int_equal(process_input_read(none, &is_pty, &base64, &err), -1);
    assert_int_equal(err.code, ERR_UNIMPLEMENTED);

    assert_int_equal(process_signal_read(kill, &signal, &err), 0);
    assert_int_equal(signal, 9);
    assert_int_equal(process_signal_read(number, &signal, &err), 0);
    assert_int_equal(signal, 15);
    assert_int_equal(process_signal_read(other, &signal, &err), -1);
    assert_int_equal(err.code, ERR_UNIMPLEMENTED);
    assert_int_equal(process_signal_read(unknown, &signal, &err), -1);
}

static void bytes_come_in_both_alphabets(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(64);
    (void)state;
    assert_int_equal(rpc_append_bytes(&b, STR("+/8=")), 0);
    assert_int_equal(rpc_append_bytes(&b, STR("-_8")), 0);
    assert_int_equal(buf_len(&b), 4);
    assert_memory_equal(buf_data(&b), "\xfb\xff\xfb\xff", 4);
    assert_int_equal(rpc_append_bytes(&b, STR("")), 0);
    assert_true(rpc_append_bytes(&b, STR("a")) < 0);
    assert_true(rpc_append_bytes(&b, STR("a b=")) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_request_is_understood),
        cmocka_unit_test(a_process_is_selected_by_one_thing),
        cmocka_unit_test(input_and_signals),
        cmocka_unit_test(bytes_come_in_both_alphabets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
