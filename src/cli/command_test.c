/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/exec/environment.h"
#include "cli/service.h"

#include <fcntl.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static const struct flag flags[] = {
    {'v', "verbose", NULL, "Says more."},
    {'e', "env", "NAME", "Sets one."},
    {0, "size", "SIZE", "How large."},
};

static const struct command plain = {.name = "plain", .operands = "", COMMAND_FLAGS(flags)};
static const struct command wrapper = {
    .name = "wrapper", .operands = "", COMMAND_FLAGS(flags), .flags_end_at_operand = true};

enum { ARGS_MAX = 12 };

struct line {
    struct context ctx;
    char *argv[ARGS_MAX + 1];
    char text[256]; /* "verbose env=A=1 |operand|operand" */
    int end;
};

static int take(struct context *ctx, void *arg, const char *flag, const char *value)
{
    (void)ctx;
    struct line *l = arg;
    size_t n = strlen(l->text);
    (void)snprintf(l->text + n, sizeof(l->text) - n, "%s%s%s ", flag, value ? "=" : "", value ? value : "");
    return 0;
}

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
    l->end = CONTEXT_READ(&l->ctx, {"", .take = take, .arg = l});
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    for (int i = l->ctx.argi; l->end == FLAGS_DONE && i < l->ctx.argc; i++) {
        size_t n = strlen(l->text);
        (void)snprintf(l->text + n, sizeof(l->text) - n, "|%s", l->argv[i]);
    }
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
    assert_parsed(&plain, "-v -e A=1 --env=B --size 5 x y", "verbose env=A=1 env=B size=5 |x|y");
    assert_parsed(&plain, "x -v y", "verbose |x|y");
    assert_parsed(&plain, "-veA x", "verbose env=A |x");
    assert_parsed(&plain, "-v -- -e", "verbose |-e");
    assert_parsed(&plain, "--verb x", "verbose |x");
}

static void a_wrapped_commands_flags_are_its_own(void **state)
{
    (void)state;
    assert_parsed(&wrapper, "-v ls -e --json", "verbose |ls|-e|--json");
    assert_parsed(&wrapper, "-v -- ls -e", "verbose |ls|-e");
}

static void common_flags_work_everywhere(void **state)
{
    (void)state;
    struct line l;
    parse(&l, &plain, "--json -v --host h:1 x");
    assert_int_equal(l.end, FLAGS_DONE);
    assert_string_equal(l.text, "verbose |x");
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
        {'q', "quiet", NULL, "build: prints the id alone; ls: names alone; tag, publish: nothing."},
        {0, "size", "SIZE", "create: most that may be in it: 2GiB. Default: no limit."},
        {0, "any", NULL, "Goes with all of them: really."},
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

/* Reads "--at VALUE" of this kind: the body's text, or what is said of it. The caller frees it. */
static char *read_at(enum flag_kind kind, uint64_t least, uint64_t most, const char *wanted, const char *value)
{
    static const struct flag at[] = {{0, "at", "N", "Where."}, {0, "all", NULL, "All of them."}};
    static const struct command command = {.name = "kinds", .operands = "", COMMAND_FLAGS(at)};
    char word[64], *argv[] = {(char *)(uintptr_t) "kinds", word, (char *)(uintptr_t) "--all", NULL};
    struct context ctx = {.command = &command, .argc = 3, .argv = argv};
    AUTO_JSON json_t *body = json_object();
    (void)snprintf(word, sizeof(word), "--at=%s", value);
    optind = 0;
    AUTO_CLOSE int saved = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(saved >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    int r =
        CONTEXT_READ(&ctx, {"all", .json = body},
                     {"at", .json = body, .member = "m", .kind = kind, .least = least, .most = most, .wanted = wanted});
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    return r == FLAGS_DONE ? json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS) : mem_strdup(ctx.err.msg);
}

static void values_are_what_their_kind_says(void **state)
{
    (void)state;
    static const struct {
        enum flag_kind kind;
        uint64_t least, most;
        const char *wanted, *value, *result;
    } values[] = {
        {FLAG_PLAIN, 0, 0, NULL, "x", "{\"all\":true,\"m\":\"x\"}"},
        {FLAG_PLAIN, 0, 0, NULL, "\xff", "--at must be UTF-8"},
        {FLAG_NUMBER, 1, 9, "1 to 9", "9", "{\"all\":true,\"m\":9}"},
        {FLAG_NUMBER, 1, 9, "1 to 9", "0", "--at 0: write 1 to 9"},
        {FLAG_NUMBER, 1, 9, "1 to 9", "10", "--at 10: write 1 to 9"},
        {FLAG_NUMBER, 0, 0, "a number", "x", "--at x: write a number"},
        {FLAG_NUMBER, 0, 0, "a number", "9223372036854775808", "--at 9223372036854775808: write a number"},
        {FLAG_TIME, 0, 0, CONTEXT_TIME, "1m", "{\"all\":true,\"m\":60000}"},
        {FLAG_TIME, 0, 0, CONTEXT_TIME, "soon", "--at soon: write a time such as 90s or 5m"},
        {FLAG_CPUS, 1, 0, "a number", "1.5", "{\"all\":true,\"m\":1500}"},
        {FLAG_CPUS, 1, 0, "a number", "0", "--at 0: write a number"},
        {FLAG_SIZE, 1 << 20, 0, NULL, "2M", "{\"all\":true,\"m\":2097152}"},
        {FLAG_SIZE, 1 << 20, 0, NULL, "1K", "--at 1K: the least is 1 MiB"},
        {FLAG_SIZE, 1 << 20, 0, NULL, "512",
         "--at 512: a number alone counts bytes, and the least is 1 MiB; write 512M"},
        {FLAG_SIZE, 1 << 20, 0, NULL, "0", "--at 0: the least is 1 MiB"},
        {FLAG_SIZE, 1 << 20, 0, NULL, "much", "--at much: write a size such as 512M or 2GiB"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        AUTO_FREE char *got =
            read_at(values[i].kind, values[i].least, values[i].most, values[i].wanted, values[i].value);
        assert_string_equal(got, values[i].result);
    }
}

static int form_ran(struct context *ctx, void *options)
{
    (void)snprintf(options, 64, "%s of %d", ctx->argv[ctx->argi - 1], context_operands(ctx));
    return STATUS_OK;
}

static void forms_are_found_by_their_word(void **state)
{
    (void)state;
    static const struct command_form forms[] = {{"add", form_ran, 1, 1, "add takes one"},
                                                {"ls", form_ran, 0, 0, "ls takes none"},
                                                {"rm", form_ran, 1, FORM_MANY, "rm takes some"}};
    static const struct {
        const char *line, *result;
    } lines[] = {{"add x", "add of 1"},
                 {"rm x y", "rm of 2"},
                 {"ls", "ls of 0"},
                 {"add x y", "add takes one"},
                 {"ls x", "ls takes none"},
                 {"rm", "rm takes some"},
                 {"", "what to do? add, ls or rm"},
                 {"list", "list of 0"},
                 {"delete 7", "delete of 1"},
                 {"lists", "there is add, ls and rm, but no \"lists\""}};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct line l;
        char ran[64] = "";
        parse(&l, &plain, lines[i].line);
        AUTO_CLOSE int saved = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        assert_true(saved >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
        int status = context_form(&l.ctx, forms, ARRAY_SIZE(forms), ran);
        assert_true(dup2(saved, STDERR_FILENO) >= 0);
        assert_int_equal(status, *ran ? STATUS_OK : STATUS_USAGE);
        assert_string_equal(*ran ? ran : l.ctx.err.msg, lines[i].result);
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
    assert_int_equal(environment_take(&ctx, &env, "env", "A=1=2"), 0);
    assert_int_equal(environment_take(&ctx, &env, "env", "EMPTY="), 0);
    assert_int_equal(environment_take(&ctx, &env, "env", "COVE_TEST_HERE"), 0);
    assert_int_equal(environment_take(&ctx, &env, "env", "COVE_TEST_GONE"), 0);
    assert_int_equal(environment_take(&ctx, &env, "env", "A=3"), 0);
    assert_int_equal(json_object_size(env), 3);
    assert_string_equal(json_string_value(json_object_get(env, "A")), "3");
    assert_string_equal(json_string_value(json_object_get(env, "EMPTY")), "");
    assert_string_equal(json_string_value(json_object_get(env, "COVE_TEST_HERE")), "value");
    assert_int_equal(environment_take(&ctx, &env, "env", "=x"), -1);
    assert_int_equal(environment_take(&ctx, &env, "env", "B=\xff"), -1);
    assert_int_equal(ctx.err.code, ERR_INVALID_ARGUMENT);
    json_decref(env);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_and_operands),
        cmocka_unit_test(a_wrapped_commands_flags_are_its_own),
        cmocka_unit_test(common_flags_work_everywhere),
        cmocka_unit_test(json_is_seen_behind_what_is_wrong),
        cmocka_unit_test(wrong_lines_are_told),
        cmocka_unit_test(flags_go_with_the_forms_that_their_help_names),
        cmocka_unit_test(values_are_what_their_kind_says),
        cmocka_unit_test(forms_are_found_by_their_word),
        cmocka_unit_test(environment_is_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
