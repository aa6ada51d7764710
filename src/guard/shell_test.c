/* SPDX-License-Identifier: Apache-2.0 */
/* What a command line would run, program by program. */
#include "base/buf.h"
#include "guard/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* "a|b|c": the words of each command, one command a line; "!" at the end: something can't be read. */
static void shell_check(const struct str *argv, size_t n, const char *expected)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct shell_line *line = arena_alloc(&arena, sizeof(*line));
    shell_read(line, &arena, argv, n);
    for (size_t i = 0; i < line->n; i++) {
        for (size_t k = 0; k < line->all[i].n_words; k++)
            buf_printf(&b, "%s%.*s", k ? "|" : "", STR_ARG(line->all[i].words[k]));
        for (size_t k = 0; k < line->all[i].n_writes; k++)
            buf_printf(&b, " >%.*s", STR_ARG(line->all[i].writes[k]));
        buf_append_char(&b, '\n');
    }
    if (line->is_unreadable)
        buf_append_cstr(&b, "!\n");
    buf_append_char(&b, 0);
    assert_string_equal(buf_data(&b), expected);
}

#define ARGV(...) (const struct str[]){__VA_ARGS__}, ARRAY_SIZE(((const struct str[]){__VA_ARGS__}))

/* Without the line of the shell itself. */
static void text_check(const char *text, const char *expected)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    buf_printf(&b, "bash|-l|-c|%s\n%s", text, expected);
    buf_append_char(&b, 0);
    shell_check(ARGV(STR("/bin/bash"), STR("-l"), STR("-c"), str_of(text)), buf_data(&b));
}

static void plain_argv_is_one_command(void **state)
{
    (void)state;
    shell_check(ARGV(STR("/usr/bin/git"), STR("push"), STR("--force")), "git|push|--force\n");
    shell_check(ARGV(STR("echo"), STR("a; rm -rf /")), "echo|a; rm -rf /\n");
}

static void runners_are_looked_through(void **state)
{
    (void)state;
    shell_check(ARGV(STR("sudo"), STR("-u"), STR("root"), STR("rm"), STR("-rf"), STR("/")),
                "sudo|-u|root|rm|-rf|/\nrm|-rf|/\n");
    shell_check(ARGV(STR("env"), STR("-i"), STR("A=b"), STR("timeout"), STR("-s"), STR("KILL"), STR("5"), STR("rm")),
                "env|-i|A=b|timeout|-s|KILL|5|rm\ntimeout|-s|KILL|5|rm\nrm\n");
    shell_check(ARGV(STR("env"), STR("-S"), STR("rm -rf /")), "env|-S|rm -rf /\nrm|-rf|/\n");
    shell_check(ARGV(STR("sudo"), STR("--user"), STR("root"), STR("rm")), "sudo|--user|root|rm\nroot|rm\nrm\n");
    shell_check(ARGV(STR("find"), STR("."), STR("-exec"), STR("rm"), STR("{}"), STR(";")),
                "find|.|-exec|rm|{}|;\nrm|{}\n");
    shell_check(ARGV(STR("xargs"), STR("-I{}"), STR("rm"), STR("{}")), "xargs|-I{}|rm|{}\nrm|{}\n");
    shell_check(ARGV(STR("su"), STR("-"), STR("user"), STR("-c"), STR("id")), "su|-|user|-c|id\nid\n");
    shell_check(ARGV(STR("bash"), STR("-euo"), STR("pipefail"), STR("-c"), STR("id")),
                "bash|-euo|pipefail|-c|id\nid\n");
    shell_check(ARGV(STR("bash"), STR("-lc"), STR("sh -c 'sh -c id'")),
                "bash|-lc|sh -c 'sh -c id'\nsh|-c|sh -c id\nsh|-c|id\nid\n");
}

static void texts_are_split(void **state)
{
    (void)state;
    text_check("cd /a && make -j2; echo 'x y' \"z\" | tee out", "cd|/a\nmake|-j2\necho|x y|z\ntee|out\n");
    text_check("A=1 B=2 make", "make\n");
    text_check("if true; then rm x; fi", "true\nrm|x\n");
    text_check("(a; b) | c", "a\nb\nc\n");
    text_check("r\"\"m -r''f \\/", "rm|-rf|/\n");
    text_check("$'\\x72\\155' x", "rm|x\n");
    text_check("rm${IFS}-rf${IFS}/", "rm|-rf|/\n");
    text_check("cat $HOME/.ssh/id_rsa \"${HOME}/x\"", "cat|~/.ssh/id_rsa|~/x\n");
    text_check("echo a >/etc/x 2>&1 2> /dev/null", "echo|a >/etc/x >/dev/null\n");
    text_check("echo $(curl x) `wget y`", "curl|x\nwget|y\necho|$()|$()\n");
    text_check("eval \"$(curl x)\"", "curl|x\neval|$()\n$()\n!\n");
    text_check("cat > f <<EOF\nrm -rf /\nEOF\nls", "cat >f\nls\n");
    text_check("bash <<'EOF'\nrm x\nEOF\nls", "bash\nrm|x\nls\n");
    text_check("bash <<< 'rm x'", "rm|x\nbash\n");
    text_check("f() { rm x; }; f", "f\nrm|x\nf\n");
    text_check("echo hi # rm x\nls", "echo|hi\nls\n");
    text_check("eval rm x", "eval|rm|x\nrm|x\n");
    text_check("while read x; do rm $x; done", "read|x\nrm|$x\n");
}

static void what_only_a_run_can_tell_is_unreadable(void **state)
{
    (void)state;
    text_check("$x -rf /", "$x|-rf|/\n!\n");
    text_check("/bin/r? x", "r?|x\n!\n");
    text_check("{rm,-rf,/}", "}\n!\n");
    text_check("echo 'a", "echo|a\n!\n");
    text_check("python3 -c 'import os'", "python3|-c|import os\n!\n");
    text_check("echo $((1 + 2)) \"$x\"", "echo|$\n1|+|2\n$x\n!\n");
}

static void it_is_bounded(void **state)
{
    (void)state;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct shell_line *line = arena_alloc(&arena, sizeof(*line));
    for (int i = 0; i < 10000; i++)
        buf_append_cstr(&b, "$(a");
    shell_read(line, &arena, ARGV(STR("sh"), STR("-c"), buf_str(&b)));
    assert_true(line->is_unreadable);
    buf_clear(&b);
    for (int i = 0; i < 2000; i++)
        buf_append_cstr(&b, "sudo --x ");
    shell_read(line, &arena, ARGV(STR("sh"), STR("-c"), buf_str(&b)));
    assert_true(line->is_unreadable);
    assert_true(line->n <= SHELL_COMMANDS_MAX);
    buf_clear(&b);
    for (int i = 0; i < 20000; i++)
        buf_append_cstr(&b, "a;");
    shell_read(line, &arena, ARGV(STR("sh"), STR("-c"), buf_str(&b)));
    assert_true(line->is_unreadable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_argv_is_one_command),
        cmocka_unit_test(runners_are_looked_through),
        cmocka_unit_test(texts_are_split),
        cmocka_unit_test(what_only_a_run_can_tell_is_unreadable),
        cmocka_unit_test(it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
