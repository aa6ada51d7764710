/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/eval/test_log.h"
#include "base/buf.h"

static const struct {
    const char *text;
    bool is_behind, has_passed;
} test_log_words[] = {
    /* pytest -rA, go test -v, TAP; unittest -v, cargo test; pytest -v */
    {"PASSED ", false, true},
    {"XFAIL ", false, true},
    {"FAILED ", false, false},
    {"ERROR ", false, false},
    {"--- PASS: ", false, true},
    {"--- FAIL: ", false, false},
    {"not ok ", false, false},
    {"ok ", false, true},
    {" ... ok", true, true},
    {" ... FAIL", true, false},
    {" ... FAILED", true, false},
    {" ... ERROR", true, false},
    {" ... expected failure", true, true},
    {" PASSED", true, true},
    {" XFAIL", true, true},
    {" FAILED", true, false},
    {" ERROR", true, false},
};

static void test_log_note(json_t *results, struct str name, bool has_passed)
{
    name = str_trim(name);
    if (!name.n || json_is_false(json_object_getn(results, name.p, name.n)))
        return;
    (void)json_object_setn_new(results, name.p, name.n, json_boolean(has_passed));
}

/* Behind the name: " - why", " (0.01s)", " # TAP's comment". SWE-bench's names end at the first blank, so those are
 * known, too. */
static void test_log_note_named(json_t *results, struct str text, bool has_passed)
{
    static const char *const ends[] = {" - ", " (", " # ", " "};
    test_log_note(results, text, has_passed);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        const char *end = text.n ? memmem(text.p, text.n, ends[i], strlen(ends[i])) : NULL;
        if (end)
            test_log_note(results, str_n(text.p, (size_t)(end - text.p)), has_passed);
    }
}

/* TAP counts: "12 - name", "12 name". pytest -v: "name PASSED [ 10%]". */
static void test_log_read_line(json_t *results, struct str line)
{
    for (size_t i = 0; i < ARRAY_SIZE(test_log_words); i++) {
        struct str word = str_of(test_log_words[i].text), rest;
        if (!test_log_words[i].is_behind && str_starts(line, word)) {
            rest = str_sub(line, word.n);
            if (strstr(test_log_words[i].text, "ok ")) {
                while (rest.n && ((*rest.p >= '0' && *rest.p <= '9') || *rest.p == ' ' || *rest.p == '-'))
                    rest = str_sub(rest, 1);
            }
            test_log_note_named(results, rest, test_log_words[i].has_passed);
            return;
        }
        if (test_log_words[i].is_behind) {
            ssize_t bracket = line.n && line.p[line.n - 1] == ']' ? (ssize_t)line.n - 1 : -1;
            while (bracket > 0 && line.p[bracket] != '[')
                bracket--;
            rest = str_trim(bracket > 0 ? str_n(line.p, (size_t)bracket) : line);
            if (str_ends(rest, word)) {
                rest.n -= word.n;
                test_log_note(results, rest, test_log_words[i].has_passed);
                if (word.p[1] == '.' && str_starts(rest, STR("test ")))
                    test_log_note(results, str_sub(rest, 5), test_log_words[i].has_passed);
                return;
            }
        }
    }
}

void test_log_read(json_t *results, struct str out)
{
    AUTO_BUF struct buf plain = BUF_INIT(out.n + 1);
    struct str line;
    for (size_t i = 0; i < out.n; i++) { /* without colours */
        if (out.p[i] == '\x1b' && i + 1 < out.n && out.p[i + 1] == '[') {
            for (i += 2; i < out.n && !(out.p[i] >= '@' && out.p[i] <= '~');)
                i++;
        } else if (out.p[i] != '\r') {
            buf_append_char(&plain, out.p[i]);
        }
    }
    out = buf_str(&plain);
    while (out.n && str_split(&out, '\n', &line)) {
        if (str_trim(line).n && str_is_utf8(line) && !str_has_nul(line))
            test_log_read_line(results, str_trim(line));
    }
}
