/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/completion.h"
#include "cli/help.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct flag flags[] = {
    {'q', "quiet", NULL, "Doesn't say [much]: ids."},
    {0, "size", "SIZE[:UNIT]",
     "How large it is to be, which is a sentence that does not fit on one line of eighty characters."},
};

static const struct command_text first_text = {
    .synopsis = "[-q] ID\n--all",
    .description = "One line that is rather long, so that it has to be filled into two of them by whoever prints it.\n"
                   "\n"
                   "Another paragraph.\n"
                   " kept  as it is",
    .examples = "cove first\ncove first -q",
};
static const struct command first = {
    .name = "first",
    .summary = "don't: do",
    .text = &first_text,
    .operands = "id",
    COMMAND_FLAGS(flags),
};
static const struct command second = {.name = "second", .summary = "else", .operands = "file"};
static const struct command third = {.name = "third", .summary = "words", .operands = "=set ls"};
static const struct command fourth = {.name = "fourth", .summary = "both", .operands = "id=rm ls"};
static const struct command fifth = {.name = "fifth", .summary = "in order", .operands = "=show set|id"};
static const struct command sixth = {
    .name = "sixth", .summary = "another's", .operands = "id|command", .flags_end_at_operand = true};
static const struct command *const commands[] = {&first, &second, &third, &fourth, &fifth, &sixth, NULL};

static char *write(const char *shell)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    assert_int_equal(completion_write(shell, commands, &b), 0);
    return buf_take(&b);
}

static void assert_holds(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
}

static void scripts_hold_commands_and_flags(void **state)
{
    (void)state;
    AUTO_FREE char *bash = write("bash"), *zsh = write("zsh"), *fish = write("fish");
    assert_holds(bash, "compgen -W 'first second third fourth fifth sixth'");
    assert_holds(bash, "first) operands='id' words='' others='' valued=' --size --host --tenant ' "
                       "flags='-q --quiet --size --json -h --help --host --tenant ' ;;");
    assert_holds(bash, "third) operands='' words='set ls' others='' valued=");
    assert_holds(bash, "fourth) operands='id' words='rm ls' others='' valued=");
    assert_holds(bash, "fifth) operands='' words='show set' others='id' valued=");
    assert_holds(bash, "sixth) operands='id' words='' others='command' ends=1 valued=");
    assert_holds(zsh, "'1:sandbox or action: _cove_ids_or rm ls' \\\n        '*:sandbox:_cove_ids'");
    assert_holds(zsh, "'1:action:(show set)' \\\n        '*:sandbox:_cove_ids'");
    assert_holds(zsh, "sixth) _arguments -s -A '-*' \\\n");
    assert_holds(zsh, "'1:sandbox:_cove_ids' \\\n        '*:::command:_normal'");
    assert_holds(zsh, "'1:action:(set ls)'");
    assert_holds(zsh, "'first:don'\\''t\\: do'");
    assert_holds(zsh, "'(--quiet)-q[Doesn'\\''t say \\[much\\]\\: ids.]'");
    assert_holds(zsh, "]:SIZE[\\:UNIT]:'");
    assert_holds(fish, "complete -c cove -n __cove_begins -a first -d 'don'\\''t: do'");
    assert_holds(fish, "complete -c cove -n '__cove_at first' -l size -x -d '");
    assert_holds(fish, "complete -c cove -n '__cove_at third first' -a 'set ls'");
    assert_holds(fish, "complete -c cove -n '__cove_at fifth other' -a '(__cove_ids)'");
    assert_holds(fish, "complete -c cove -n '__cove_at sixth other' -a '(__fish_complete_command)'");
    assert_holds(fish, "        case first\n            string split ' ' -- '--size --host --tenant '\n");
}

static void other_shells_are_refused(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    assert_int_equal(completion_write("tcsh", commands, &b), -EINVAL);
    assert_int_equal(completion_write("", commands, &b), -EINVAL);
    assert_int_equal(buf_len(&b), 0);
}

static void help_is_filled(void **state)
{
    (void)state;
    char text[8192] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    help_command(&first, out);
    assert_int_equal(fclose(out), 0);
    assert_holds(text, "NAME\n       cove first - don't: do\n");
    assert_holds(text, "SYNOPSIS\n       cove first [-q] ID\n       cove first --all\n");
    assert_holds(
        text,
        "DESCRIPTION\n       One line that is rather long, so that it has to be filled into two of them by whoever prints\n"
        "       it.\n\n       Another paragraph.\n        kept  as it is\n");
    assert_holds(text,
                 "       -q, --quiet                  Doesn't say [much]: ids.\n"
                 "           --size SIZE[:UNIT]       How large it is to be, which is a sentence that does not fit on\n"
                 "                                    one line of eighty characters.\n");
    assert_holds(text, "EXAMPLES\n       cove first\n       cove first -q\n");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_hold_commands_and_flags),
        cmocka_unit_test(other_shells_are_refused),
        cmocka_unit_test(help_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
