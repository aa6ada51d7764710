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

#define FACADE "[ ! -x /bin/bash ] || exec /bin/bash -c \"$1\"; exec /bin/sh -c \"$1\""

/* As text_check(), of `sh -c TEXT x rm '-rf /'`. */
static void params_check(const char *text, const char *expected)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    buf_printf(&b, "sh|-c|%s|x|rm|-rf /\n%s", text, expected);
    buf_append_char(&b, 0);
    shell_check(ARGV(STR("/bin/sh"), STR("-c"), str_of(text), STR("x"), STR("rm"), STR("-rf /")), buf_data(&b));
}

static void words_behind_a_text_are_its_parameters(void **state)
{
    (void)state;
    params_check("\"$@\"", "rm|-rf /\n");
    params_check("$@", "rm|-rf|/\n");
    params_check("$*", "rm|-rf|/\n");
    params_check("a \"$*\"; \"<$@>\"", "a|rm -rf /\n<rm|-rf />\n");
    params_check("${1} $2 $3 '$1' \"$0\"", "rm|-rf|/|$1|x\n");
    params_check("exec \"$1\" \"$2\"", "exec|rm|-rf /\nrm|-rf /\n");
    params_check("sudo $3 \"$1\"", "sudo|rm\nrm\n");
    params_check("eval \"$@\"", "eval|rm|-rf /\nrm|-rf|/\n");
    params_check("eval '$1' $2", "eval|$1|-rf|/\nrm|-rf|/\n");
    params_check("bash -c \"$1 $2\"", "bash|-c|rm -rf /\nrm|-rf|/\n");
    params_check("bash -c '$1' y \"$1\"", "bash|-c|$1|y|rm\nrm\n");
    params_check("(\"$1\"; echo `$1`)", "rm\nrm\necho|$()\n");
    params_check("echo >\"$1\"", "echo >rm\n");
    shell_check(ARGV(STR("sh"), STR("-c"), STR("\"$0\" \"$@\""), STR("rm")), "sh|-c|\"$0\" \"$@\"|rm\nrm\n");
    shell_check(ARGV(STR("sh"), STR("-c"), STR("sudo \"$@\" id"), STR("x")), "sh|-c|sudo \"$@\" id|x\nsudo|id\nid\n");
    shell_check(ARGV(STR("sh"), STR("-c"), STR(FACADE), STR("sh"), STR("sleep 1; id")),
                "sh|-c|" FACADE "|sh|sleep 1; id\n[|!|-x|/bin/bash|]\n"
                "exec|/bin/bash|-c|sleep 1; id\nbash|-c|sleep 1; id\nsleep|1\nid\n"
                "exec|/bin/sh|-c|sleep 1; id\nsh|-c|sleep 1; id\nsleep|1\nid\n");
    params_check("exec setpriv --reuid=1 --regid=\"$(id -g 1)\" --clear-groups -- \"$@\" >f",
                 "id|-g|1\nexec|setpriv|--reuid=1|--regid=$()|--clear-groups|--|rm|-rf / >f\n"
                 "setpriv|--reuid=1|--regid=$()|--clear-groups|--|rm|-rf / >f\nrm|-rf / >f\n");
}

static void parameters_that_only_a_run_can_tell_are_unreadable(void **state)
{
    (void)state;
    params_check("shift; \"$@\"", "shift\n$@\n!\n");
    params_check("set -- id; $1", "set|--|id\n$1\n!\n");
    params_check("set -eu; $1", "set|-eu\nrm\n");
    params_check("f() { \"$1\"; }; f id", "f\n$1\nf|id\n!\n");
    params_check("IFS=x; $1", "$1\n!\n");
    params_check("while true; do \"$1\"; shift; done", "true\nrm\nshift\n!\n");
    params_check("\"${@:1}\"", "${@:1}\n!\n");
    params_check("sudo \"${1:-x}\"", "sudo|${1:-x}\n${1:-x}\n!\n");
    params_check("bash -c 'bash -c \"echo $1\"' y \"$z\"",
                 "bash|-c|bash -c \"echo $1\"|y|$z\nbash|-c|echo $z\necho|$z\n!\n");
    params_check("bash -c \"echo $z\"", "bash|-c|echo $z\necho|$z\n!\n");
    params_check("bash -c 'echo \"$1\"' y \"$z\"", "bash|-c|echo \"$1\"|y|$z\necho|$z\n");
    text_check("bash <<E\n$1\nE\nid", "bash\n$1\nid\n!\n");
    text_check("su -c '$1' x rm", "su|-c|$1|x|rm\n$1\n!\n");
    text_check("if $x; then sudo $x; fi", "$x\nsudo|$x\n$x\n!\n");
    shell_check(ARGV(STR("xargs"), STR("sh"), STR("-c"), STR("\"$@\""), STR("x"), STR("rm")),
                "xargs|sh|-c|\"$@\"|x|rm\nsh|-c|\"$@\"|x|rm\nrm|$@\n");
    shell_check(ARGV(STR("xargs"), STR("sh"), STR("-c"), STR("$1"), STR("x")), "xargs|sh|-c|$1|x\nsh|-c|$1|x\n$1\n!\n");
    shell_check(ARGV(STR("find"), STR("."), STR("-exec"), STR("sh"), STR("-c"), STR("$0"), STR("{}"), STR(";")),
                "find|.|-exec|sh|-c|$0|{}|;\nsh|-c|$0|{}\n{}\n!\n");
}

static void what_only_a_run_can_tell_is_unreadable(void **state)
{
    (void)state;
    text_check("$x -rf /", "$x|-rf|/\n!\n");
    text_check("[ -x a ] && [[ -x b ]]", "[|-x|a|]\n[[|-x|b|]]\n");
    text_check("[r]m x", "[r]m|x\n!\n");
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
    buf_clear(&b);
    for (int i = 0; i < 1000; i++)
        buf_append_cstr(&b, "a$1 ");
    shell_read(line, &arena, ARGV(STR("sh"), STR("-c"), buf_str(&b), STR("x"), buf_str(&b)));
    assert_true(line->is_unreadable);
    assert_true(line->n_expanded <= SHELL_EXPANDED_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_argv_is_one_command),
        cmocka_unit_test(runners_are_looked_through),
        cmocka_unit_test(texts_are_split),
        cmocka_unit_test(what_only_a_run_can_tell_is_unreadable),
        cmocka_unit_test(words_behind_a_text_are_its_parameters),
        cmocka_unit_test(parameters_that_only_a_run_can_tell_are_unreadable),
        cmocka_unit_test(it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
