/* SPDX-License-Identifier: Apache-2.0 */
/* Patches of random contents are applied here by a few lines that know hunks alone; what git itself makes of them:
 * cli_diff_test.py. */
#include "base/mem.h"
#include "cli/files/patch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct patch_side *old, const struct patch_side *new, const char *path, const char *want)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    patch_append(&b, str_of(path), old, new);
    buf_append_char(&b, '\0');
    assert_string_equal(buf_data(&b), want);
}

static void test_what_git_writes(void **state)
{
    (void)state;
    const struct patch_side none = {0}, empty = {.exists = true, .content = STR("")},
                            one = {.exists = true, .content = STR("a\nb\nc\n")},
                            two = {.exists = true, .content = STR("a\nB\nc")},
                            run = {.exists = true, .is_executable = true, .content = STR("a\nb\nc\n")},
                            link = {.exists = true, .is_link = true, .content = STR("x")};
    expect(&none, &none, "f", "");
    expect(&one, &one, "f", "");
    expect(
        &one, &two, "f",
        "diff --git a/f b/f\nindex de980441c3ab03a8c07dda1ad27b8a11f39deb1e..36ef1ba5a79cdfa8b05036e0aa1aab5b21eb0639 100644\n"
        "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n");
    expect(&one, &run, "f", "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n");
    expect(&none, &empty, "f",
           "diff --git a/f b/f\nnew file mode 100644\n"
           "index 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n");
    expect(&none, &link, "a \"q\"\n",
           "diff --git \"a/a \\\"q\\\"\\012\" \"b/a \\\"q\\\"\\012\"\nnew file mode 120000\n"
           "index 0000000000000000000000000000000000000000..c1b0730e0133447badcfd47fd144e254807b06e1\n"
           "--- /dev/null\n+++ \"b/a \\\"q\\\"\\012\"\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n");
}

/* Applies hunks to `old`; every line that the patch says is there must be. */
static void apply(struct str old, struct str patch, struct buf *ret)
{
    struct str line;
    bool in_hunk = false;
    char last = 0;
    while (patch.n > 0) {
        const char *end = memchr(patch.p, '\n', patch.n);
        assert_non_null(end);
        line = str_n(patch.p, (size_t)(end - patch.p) + 1);
        patch = str_sub(patch, line.n);
        if (line.p[0] == '@') {
            in_hunk = true;
            continue;
        }
        if (!in_hunk)
            continue;
        if (line.p[0] == '\\') { /* the line before has no end */
            if (last != '-')
                ret->end--;
            continue;
        }
        last = line.p[0];
        if (last != '+') {
            /* Skip unchanged lines up to this one: hunks hold the changes in order. */
            struct str body = str_sub(line, 1);
            for (;;) {
                const char *stop = old.n ? memchr(old.p, '\n', old.n) : NULL;
                struct str here = stop ? str_n(old.p, (size_t)(stop - old.p) + 1) : old;
                assert_true(old.n > 0);
                old = str_sub(old, here.n);
                if (str_eq(here, body) || (!stop && str_eq(here, str_n(body.p, body.n - 1))))
                    break;
                buf_append_str(ret, here);
            }
        }
        if (last != '-')
            buf_append_str(ret, str_sub(line, 1));
    }
    buf_append_str(ret, old);
}

/* Each line is one of its own, so that "up to this one" above is no guess; order and choice are random. */
static struct str random_text(char *room, unsigned *seed, int lines)
{
    size_t n = 0;
    for (int i = 0; i < lines; i++)
        if (rand_r(seed) % 4)
            n += (size_t)snprintf(room + n, 16, "line %d\n", i);
    if (n && rand_r(seed) % 2)
        n--;
    return str_n(room, n);
}

static void test_patches_lead_from_one_to_the_other(void **state)
{
    (void)state;
    enum { MOST = 400 };
    static char a[MOST * 16], b[MOST * 16];
    for (unsigned i = 1; i < 400; i++) {
        unsigned seed = i;
        AUTO_BUF struct buf patch = BUF_INIT(1 << 20), got = BUF_INIT(1 << 20);
        const struct patch_side old = {.exists = true, .content = random_text(a, &seed, (int)(i % MOST))},
                                new = {.exists = true, .content = random_text(b, &seed, (int)(i % MOST))};
        patch_append(&patch, STR("f"), &old, &new);
        apply(old.content, buf_str(&patch), &got);
        assert_int_equal(buf_len(&got), new.content.n);
        if (new.content.n)
            assert_memory_equal(buf_data(&got), new.content.p, new.content.n);
    }
}

/* More differs than the search takes: one change, and soon. */
static void test_nothing_in_common(void **state)
{
    (void)state;
    enum { LINES = 200000, ROOM = LINES * 10 };
    char *a = mem_alloc(ROOM), *b = mem_alloc(ROOM);
    size_t n = 0, m = 0;
    for (int i = 0; i < LINES; i++) {
        n += (size_t)snprintf(a + n, 10, "a%d\n", i);
        m += (size_t)snprintf(b + m, 10, "b%d\n", i);
    }
    AUTO_BUF struct buf patch = BUF_INIT(1 << 24);
    patch_append(&patch, STR("f"), &(struct patch_side){.exists = true, .content = str_n(a, n)},
                 &(struct patch_side){.exists = true, .content = str_n(b, m)});
    assert_int_equal(buf_error(&patch), 0);
    assert_non_null(memmem(buf_data(&patch), buf_len(&patch), "@@ -1,200000 +1,200000 @@\n-a0\n", 30));
    mem_free(a);
    mem_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_git_writes),
        cmocka_unit_test(test_patches_lead_from_one_to_the_other),
        cmocka_unit_test(test_nothing_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
