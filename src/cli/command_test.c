/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/environment.h"

#include <fcntl.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static const struct flag flags[] = {
    {'v', 'v', "verbose", NULL, "Says more."},
    {'e', 'e', "env", "NAME", "Sets one."},
    {256, 0, "size", "SIZE", "How large."},
};

static const struct command plain = {.name = "plain", .operands = "", COMMAND_FLAGS(flags)};
static const struct command wrapper = {
    .name = "wrapper", .operands = "", COMMAND_FLAGS(flags), .flags_end_at_operand = true};

enum { ARGS_MAX = 12 };

struct line {
    struct context ctx;
    char *argv[ARGS_MAX + 1];
    char text[256]; /* "v e=A=1 |operand operand" */
    int end;
};

/* Parses `arguments`, separated by blanks, and writes down what came out. What it says goes nowhere. */
static void parse(struct line *l, const struct command *command, const char *arguments)
{
    *l = (struct line){.ctx = {.command = command}};
    struct str rest = str_of(arguments), word;
    l->argv[l->ctx.argc++] = mem_strdup(command->name);
    while (str_split(&rest, ' ', &word))
        if (word.n > 0)
            l->argv[l->ctx.argc++] = mem_strndup(word.p, word.n);
    l->ctx.argv = l->argv;
    optind = 0; /* glibc: starts afresh */

    AUTO_CLOSE int saved = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(saved >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    const char *value;
    size_t n = 0;
    int id;
    while ((id = context_next_flag(&l->ctx, &value)) > 0) {
        if (id < 256)
            n +=
                (size_t)snprintf(l->text + n, sizeof(l->text) - n, "%c%s%s ", id, value ? "=" : "", value ? value : "");
        else
            n += (size_t)snprintf(l->text + n, sizeof(l->text) - n, "%d=%s ", id, value);
    }
    l->end = id;
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    for (int i = l->ctx.argi; id == FLAGS_DONE && i < l->ctx.argc; i++)
        n += (size_t)snprintf(l->text + n, sizeof(l->text) - n, "|%s", l->argv[i]);
}

static void done(struct line *l)
{
    for (int i = 0; i < l->ctx.argc; i++)
        mem_free(l->argv[i]);
}

static void assert_parsed(const struct command *command, const char *arguments, const char *expected)
{
    struct line l;
    parse(&l, command, arguments);
    assert_int_equal(l.end, FLAGS_DONE);
    assert_string_equal(l.text, expected);
    done(&l);
}

static void assert_wrong(const char *arguments, const char *message)
{
    struct line l;
    parse(&l, &plain, arguments);
    assert_int_equal(l.end, FLAGS_STOP);
    assert_int_equal(context_exit(&l.ctx), STATUS_USAGE);
    assert_string_equal(l.ctx.err.msg, message);
    assert_string_equal(l.ctx.hint, "'cove plain --help' shows how it is used");
    done(&l);
}

static void flags_and_operands(void **state)
{
    (void)state;
    assert_parsed(&plain, "", "");
    assert_parsed(&plain, "-v -e A=1 --env=B --size 5 x y", "v e=A=1 e=B 256=5 |x|y");
    assert_parsed(&plain, "x -v y", "v |x|y");
    assert_parsed(&plain, "-veA x", "v e=A |x");
    assert_parsed(&plain, "-v -- -e", "v |-e");
    assert_parsed(&plain, "--verb x", "v |x");
}

static void a_wrapped_commands_flags_are_its_own(void **state)
{
    (void)state;
    assert_parsed(&wrapper, "-v ls -e --json", "v |ls|-e|--json");
    assert_parsed(&wrapper, "-v -- ls -e", "v |ls|-e");
}

static void common_flags_work_everywhere(void **state)
{
    (void)state;
    struct line l;
    parse(&l, &plain, "--json -v --host h:1 x");
    assert_int_equal(l.end, FLAGS_DONE);
    assert_string_equal(l.text, "v |x");
    assert_true(l.ctx.json);
    assert_string_equal(l.ctx.host, "h:1");
    done(&l);
}

static void json_is_seen_behind_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool json;
    } lines[] = {
        {"--nothing --json", true}, {"--json --nothing", true},     {"--size", false},
        {"-z x y --js", true},      {"--nothing -- --json", false}, {"--nothing -e --json", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct line l;
        parse(&l, &plain, lines[i].line);
        assert_int_equal(l.end, FLAGS_STOP);
        assert_int_equal(context_exit(&l.ctx), STATUS_USAGE);
        assert_int_equal(l.ctx.json, lines[i].json);
        done(&l);
    }
    struct line l;
    parse(&l, &wrapper, "-z ls --json");
    assert_false(l.ctx.json); /* it is another program's */
    done(&l);
}

static void wrong_lines_are_told(void **state)
{
    (void)state;
    assert_wrong("--nothing", "unknown option --nothing");
    assert_wrong("-z", "unknown option -z");
    assert_wrong("-vz", "unknown option -z");
    assert_wrong("--size", "--size needs a value");
    assert_wrong("x -e", "-e needs a value");
}

static void flags_go_with_the_forms_that_their_help_names(void **state)
{
    (void)state;
    static const struct flag of_forms[] = {
        {'q', 'q', "quiet", NULL, "build: prints the id alone; ls: names alone; tag, publish: nothing."},
        {256, 0, "size", "SIZE", "create: most that may be in it: 2GiB. Default: no limit."},
        {257, 0, "any", NULL, "Goes with all of them: really."},
    };
    static const struct command command = {.name = "formed", .operands = "", COMMAND_FLAGS(of_forms)};
    static const struct {
        const char *line, *form, *message;
    } lines[] = {
        {"-q", "build", NULL},
        {"-q", "publish", NULL},
        {"-q --any", "ls", NULL},
        {"--size 1", "create", NULL},
        {"--any", "show", NULL},
        {"", "show", NULL},
        {"-q", "show", "--quiet goes with build, ls, tag, publish only"},
        {"--any --size 1", "ls", "--size goes with create only"},
        {"--size 1", "", "--size goes with create only"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct line l;
        parse(&l, &command, lines[i].line);
        assert_int_equal(context_check_form(&l.ctx, lines[i].form), lines[i].message ? STATUS_USAGE : STATUS_OK);
        assert_string_equal(l.ctx.err.msg, lines[i].message ? lines[i].message : "");
        done(&l);
    }
}

static void environment_is_gathered(void **state)
{
    (void)state;
    struct context ctx = {.command = &plain};
    json_t *env = NULL;
    assert_int_equal(setenv("COVE_TEST_HERE", "value", 1), 0);
    assert_int_equal(unsetenv("COVE_TEST_GONE"), 0);
    assert_int_equal(environment_add(&ctx, "A=1=2", &env), 0);
    assert_int_equal(environment_add(&ctx, "EMPTY=", &env), 0);
    assert_int_equal(environment_add(&ctx, "COVE_TEST_HERE", &env), 0);
    assert_int_equal(environment_add(&ctx, "COVE_TEST_GONE", &env), 0);
    assert_int_equal(environment_add(&ctx, "A=3", &env), 0);
    assert_int_equal(json_object_size(env), 3);
    assert_string_equal(json_string_value(json_object_get(env, "A")), "3");
    assert_string_equal(json_string_value(json_object_get(env, "EMPTY")), "");
    assert_string_equal(json_string_value(json_object_get(env, "COVE_TEST_HERE")), "value");
    assert_int_equal(environment_add(&ctx, "=x", &env), -1);
    assert_int_equal(environment_add(&ctx, "B=\xff", &env), -1);
    assert_int_equal(ctx.err.code, ERR_INVALID_ARGUMENT);
    json_decref(env);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_and_operands),           cmocka_unit_test(a_wrapped_commands_flags_are_its_own),
        cmocka_unit_test(common_flags_work_everywhere), cmocka_unit_test(json_is_seen_behind_what_is_wrong),
        cmocka_unit_test(wrong_lines_are_told),         cmocka_unit_test(flags_go_with_the_forms_that_their_help_names),
        cmocka_unit_test(environment_is_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
