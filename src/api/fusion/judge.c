/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge: a model's answer, the program in it, the tests that come with the request ("provided_data"), a verdict. Of
 * the kinds of data sets there are two:
 *
 *   CommonOJDataset     tests of stdin and stdout; one run each, until one fails (extra.run_all_cases: all)
 *   AutoEvalDataset     a test program, behind the answer's or where it says #<INSERT>; passed when that succeeds
 *
 * Cove brings no data sets.
 */
#include "api/fusion/handlers.h"
#include "base/id.h"
#include "base/mem.h"

#include <stdlib.h>

enum { JUDGED_MAX = 3 * CALL_REPLY_MAX }; /* outputs and what came with the request */

#define MAIN "if __name__ == \"__main__\":"

/* ---- the program in an answer ---- */

static bool extract_is_language(struct str tag, struct str language)
{
    static const char *const known[][6] = {
        {"python", "py", "python3"},
        {"cpp", "c++"},
        {"nodejs", "javascript", "js"},
        {"go"},
        {"java"},
        {"csharp", "c#"},
        {"bash", "sh", "shell"},
        {"typescript", "ts"},
        {"rust", "rs"},
        {"julia", "jl"},
        {"kotlin_script", "kotlin"},
        {"D_ut", "d"},
    };
    if (str_eq_nocase(tag, language))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        for (size_t k = 1; str_eqc(language, known[i][0]) && k < 6 && known[i][k]; k++)
            if (str_eq_nocase(tag, str_of(known[i][k])))
                return true;
    return false;
}

static struct str extract_line(struct str *rest)
{
    struct str line = STR("");
    (void)str_split(rest, '\n', &line);
    return line;
}

/* From the first import, def or class with something indented below it, to the end of that. */
static struct str extract_python(struct arena *arena, struct str text)
{
    struct buf b = BUF_INIT(text.n + 64);
    bool has_head = false, has_body = false;
    struct str rest = text;
    while (rest.n) {
        struct str line = extract_line(&rest);
        bool is_blank = str_trim(line).n == 0, is_indented = line.n && (line.p[0] == ' ' || line.p[0] == '\t');
        bool is_import = str_starts(line, STR("import")) || str_starts(line, STR("from")) || str_starts(line, STR("#"));
        if (is_blank)
            continue;
        if (has_head && !is_indented) {
            if (has_body)
                break;
            has_head = false;
            buf_clear(&b);
        }
        if (!is_indented && !is_import && !str_starts(line, STR("def ")) && !str_starts(line, STR("class "))) {
            buf_clear(&b);
            continue;
        }
        if (is_indented && !has_head) {
            buf_clear(&b);
            continue;
        }
        has_body |= is_indented;
        has_head |= !is_import && !is_indented;
        (void)buf_append_str(&b, line);
        (void)buf_append_char(&b, '\n');
    }
    struct str found = has_body ? arena_str(arena, buf_str(&b)) : STR("");
    buf_fini(&b);
    return found;
}

struct str fusion_extract(struct arena *arena, struct str completion, struct str language)
{
    struct str rest = completion, first = STR_NULL, open = STR_NULL;
    while (rest.n) {
        struct str line = extract_line(&rest), body = rest, end, tag;
        if (line.n < 3 || memcmp(line.p, "```", 3) != 0)
            continue;
        tag = str_trim(str_sub(line, 3));
        do {
            end = rest;
        } while (rest.n && !str_starts(str_trim(extract_line(&rest)), STR("```")));
        bool is_closed = end.n > 0;
        size_t n = is_closed ? (size_t)(end.p - body.p) : body.n;
        struct str block = str_n(body.p, n && is_closed ? n - 1 : n);
        if (is_closed && extract_is_language(tag, language))
            return block;
        if (is_closed && !first.p)
            first = block;
        if (!is_closed && !open.p)
            open = block;
    }
    if (first.p || open.p)
        return first.p ? first : open;
    return str_eqc(language, "python") ? extract_python(arena, completion)
           : str_eqc(language, "bash") ? completion
                                       : STR("");
}

/* ---- outputs ---- */

static struct str same_strip(struct str s)
{
    while (s.p && s.n && strchr(" \t\r\n\f\v", s.p[s.n - 1]))
        s.n--;
    while (s.p && s.n && strchr(" \t\r\n\f\v", s.p[0]))
        s = str_sub(s, 1);
    return s;
}

static bool same_number(struct str s, double *ret_value)
{
    char text[64], *end;
    if (!s.n || s.n >= sizeof(text) || str_has_nul(s))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    *ret_value = strtod(text, &end);
    return !*end;
}

static bool same_line(struct str got, struct str expected)
{
    double a, b;
    if (str_eq_nocase(got, expected))
        return true;
    if (!same_number(got, &a) || !same_number(expected, &b))
        return false;
    double far = a > b ? a - b : b - a, size = b > 0 ? b : -b;
    return far / MAX(size, 1e-10) < 1e-5;
}

bool fusion_same_output(struct str got, struct str expected)
{
    got = same_strip(got);
    expected = same_strip(expected);
    while (got.n && expected.n)
        if (!same_line(same_strip(extract_line(&got)), same_strip(extract_line(&expected))))
            return false;
    return !got.n && !expected.n;
}

/* ---- data that comes with the request ---- */

struct judge {
    struct fusion_run run, asked;            /* asked: what each run begins with */
    const json_t *id, *config, *row, *tests; /* of the request; tests: of stdin and stdout, NULL: one program */
    json_t *owned[2];                        /* what was JSON in a string */
    struct str code, full_code;
    size_t next;
    bool is_accepted, runs_all;
    char flag[21]; /* what the program prints at its end; "": nothing */
    struct buf told;
};

/* A member that may be JSON in a string. */
static const json_t *judge_json(struct judge *j, size_t slot, const char *name)
{
    json_t *value = json_object_get(j->row, name);
    if (!json_is_string(value))
        return value;
    struct err err;
    AUTO_BUF struct buf b = BUF_INIT(FUSION_BODY_MAX + 16);
    buf_printf(&b, "{\"v\":%s}", json_string_value(value));
    if (json_read(buf_str(&b), &j->owned[slot], &err) < 0)
        return NULL;
    return json_object_get(j->owned[slot], "v");
}

/* The row that the request means. NULL: answered. */
static const json_t *judge_row(struct call *c, const json_t *config, const json_t *id)
{
    const json_t *data = json_object_get(config, "provided_data");
    if (json_is_object(data))
        return data;
    JSON_FOREACH (row, data)
        if (id && json_is_object(row) && json_equal(json_object_get(row, "id"), id))
            return row;
    call_fail(c, json_is_array(data) ? 404 : 400,
              json_is_array(data) ? "provided_data has no such id"
                                  : "there are no data sets here: send the problem as config.provided_data");
    return NULL;
}

static const json_t *judge_config(struct call *c)
{
    const json_t *config = json_object_get(c->body, "config");
    if (!json_is_object(config))
        call_refuse(c, ERR_INVALID_ARGUMENT, "config must be an object");
    return json_is_object(config) ? config : NULL;
}

static void judge_answer(struct call *c, json_t *answer)
{
    AUTO_BUF struct buf b = BUF_INIT(CALL_REPLY_MAX);
    AUTO_FREE char *text = json_dumps(answer, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(answer);
    buf_append_cstr(&b, text ? text : "null");
    call_json_buf(c, 200, &b);
}

void fusion_list_datasets(struct call *c)
{
    call_json(c, 200, STR("[]"));
}

static json_t *judge_prompt(const json_t *row)
{
    return json_pack("{s:O,s:O,s:O*}", "id", json_object_get(row, "id"), "prompt", json_object_get(row, "content"),
                     "labels", json_object_get(row, "labels"));
}

/* All rows, by fn. */
static void judge_rows(struct call *c, json_t *(*fn)(const json_t *row))
{
    const json_t *config = judge_config(c), *data = json_object_get(config, "provided_data");
    json_t *all = json_array(), *one;
    if (config && !json_is_array(data))
        call_fail(c, 400, "there are no data sets here: send them as config.provided_data");
    JSON_FOREACH (row, data)
        if (json_is_object(row) && (one = fn(row)))
            (void)json_array_append_new(all, one);
    judge_answer(c, all);
}

static json_t *judge_id(const json_t *row)
{
    return json_incref(json_object_get(row, "id"));
}

void fusion_list_ids(struct call *c)
{
    judge_rows(c, judge_id);
}

void fusion_prompts(struct call *c)
{
    judge_rows(c, judge_prompt);
}

void fusion_prompt(struct call *c)
{
    const json_t *config = judge_config(c);
    const json_t *row = config ? judge_row(c, config, json_object_get(c->body, "id")) : NULL;
    json_t *prompt = row ? judge_prompt(row) : NULL;
    if (prompt)
        judge_answer(c, prompt);
    else if (row)
        call_fail(c, 400, "the row needs an id and content");
}

void fusion_metrics(struct call *c)
{
    call_json(c, 200, STR("{}"));
}

void fusion_metrics_function(struct call *c)
{
    call_json(c, 200, STR("{\"function\":null}"));
}

/* ---- verdicts ---- */

static struct judge *judge_of(struct fusion_run *r)
{
    return container_of(r, struct judge, run);
}

static void judge_fini(struct fusion_run *r)
{
    struct judge *j = judge_of(r);
    buf_fini(&j->told);
    for (size_t i = 0; i < ARRAY_SIZE(j->owned); i++)
        json_decref(TAKE_PTR(j->owned[i]));
}

static void judge_end(struct call *c, struct judge *j)
{
    AUTO_BUF struct buf b = BUF_INIT(JUDGED_MAX);
    char *id = json_dumps(j->id, JSON_COMPACT | JSON_ENCODE_ANY);
    buf_printf(&b, "{\"id\":%s,\"accepted\":%s,\"extracted_code\":", id ? id : "null",
               j->is_accepted ? "true" : "false");
    mem_free(id);
    buf_append_json_string(&b, j->code);
    buf_append_cstr(&b, ",\"full_code\":");
    if (j->full_code.p)
        buf_append_json_string(&b, j->full_code);
    else
        buf_append_cstr(&b, "null");
    buf_append_cstr(&b, ",\"test_code\":null,\"tests\":[");
    buf_append_str(&b, buf_str(&j->told));
    buf_append_cstr(&b, "],\"extracted_type\":null,\"extra\":null}");
    if (buf_error(&j->told) < 0)
        call_fail(c, 500, "the answer is larger than %d bytes", JUDGED_MAX);
    else
        call_json_buf(c, 200, &b);
}

static struct str judge_member(const json_t *object, const char *of, const char *name)
{
    const json_t *text = json_object_get(json_object_get(object, of), name);
    return json_is_string(text) ? json_str(text) : STR_NULL;
}

static void judge_next(struct call *c, struct judge *j);

static void judge_ran(struct call *c, struct fusion_run *r)
{
    struct judge *j = judge_of(r);
    json_t *test = json_array_get(j->tests, j->next++);
    struct str out = buf_str(&r->ran.out), flag = str_of(j->flag);
    bool is_passed = fusion_run_succeeded(r), failed = r->message[0] != 0;
    if (test)
        is_passed = is_passed && fusion_same_output(out, judge_member(test, "output", "stdout"));
    else if (flag.n)
        is_passed = is_passed && out.n && memmem(out.p, out.n, flag.p, flag.n);
    j->is_accepted = j->is_accepted && is_passed;
    buf_printf(&j->told, "%s{\"passed\":%s,\"exec_info\":", buf_len(&j->told) ? "," : "", is_passed ? "true" : "false");
    size_t left = CALL_REPLY_MAX - MIN(buf_len(&j->told), (size_t)CALL_REPLY_MAX); /* for the outputs of all tests */
    fusion_run_append(&j->told, r, MIN(MAX(left / 8, (size_t)2), (size_t)FUSION_ESCAPED_MAX));
    char *info = test ? json_dumps(test, JSON_COMPACT) : NULL;
    buf_printf(&j->told, ",\"test_info\":");
    buf_append_cstr(&j->told, info ? info : "null");
    mem_free(info);
    buf_append_char(&j->told, '}');
    if (j->next < json_array_size(j->tests) && (is_passed || j->runs_all) && !failed) {
        fusion_run_forget(r);
        judge_next(c, j);
    } else {
        judge_end(c, j);
    }
}

static void judge_next(struct call *c, struct judge *j)
{
    const json_t *test = json_array_get(j->tests, j->next);
    const struct fusion_run asked = j->asked;
    j->run = asked;
    if (test)
        j->run.stdin_text = judge_member(test, "input", "stdin");
    fusion_run_start(c, &j->run);
}

static struct str judge_before(struct str code, const char *mark)
{
    const char *at = code.n ? memmem(code.p, code.n, mark, strlen(mark)) : NULL;
    return at ? str_n(code.p, (size_t)(at - code.p)) : code;
}

/* The answer's program and the test as one. */
static struct str judge_join(struct call *c, struct judge *j, struct str language, struct str test)
{
    static const char insert[] = "#<INSERT>";
    const char *at = memmem(test.p, test.n, insert, strlen(insert));
    struct str code = str_eqc(language, "python") ? judge_before(j->code, MAIN)
                      : str_eqc(language, "cpp")  ? judge_before(j->code, "int main()")
                                                  : j->code;
    AUTO_BUF struct buf b = BUF_INIT(2 * FUSION_BODY_MAX);
    buf_append_str(&b, at ? str_n(test.p, (size_t)(at - test.p)) : code);
    buf_append_str(&b, at ? code : STR("\n"));
    buf_append_str(&b, at ? str_sub(test, (size_t)(at - test.p) + strlen(insert)) : test);
    if (j->flag[0])
        buf_printf(&b, "\n\nprint(\"%s\")", j->flag);
    return arena_str(http_arena(c->req), buf_str(&b));
}

static int judge_auto(struct call *c, struct judge *j, struct err *err)
{
    const json_t *labels = judge_json(j, 0, "labels"), *test = judge_json(j, 1, "test"), *asset;
    struct str language = STR(""), runs_as, code = STR_NULL;
    json_t *extra = json_object_get(j->config, "extra");
    if (!json_is_object(labels) || !json_is_object(test) ||
        json_get_str(labels, "programming_language", &language, err) < 1)
        return err_set(err, ERR_INVALID_ARGUMENT, "labels.programming_language and test.code are needed");
    runs_as = language;
    if (json_get_str(labels, "execution_language", &runs_as, err) < 0 || json_get_str(test, "code", &code, err) < 1)
        return err_set(err, ERR_INVALID_ARGUMENT, "test.code is needed");
    j->asked.language = fusion_language_find(runs_as);
    if (!j->asked.language || str_starts(runs_as, STR("go")) || str_eqc(language, "java"))
        return err_set(err, ERR_INVALID_ARGUMENT, "AutoEvalDataset does not support %.*s", STR_ARG(runs_as));
    asset = json_object_get(test, "asset");
    j->asked.files = json_is_object(asset) ? (json_t *)(uintptr_t)asset : NULL;
    if (json_is_true(json_object_get(extra, "append_flag")) && str_eqc(runs_as, "python"))
        id_token(j->flag, sizeof(j->flag) - 1);
    j->code = fusion_extract(http_arena(c->req), j->asked.code, language);
    j->asked.code = j->full_code = judge_join(c, j, language, code);
    return fusion_run_times(j->config, 40, 20, &j->asked, err);
}

static int judge_stdio(struct call *c, struct judge *j, struct err *err)
{
    struct str language = STR("");
    if (json_get_str(j->config, "language", &language, err) < 1)
        return err_set(err, ERR_INVALID_ARGUMENT, "config.language is needed");
    j->asked.language = fusion_language_find(language);
    if (!j->asked.language)
        return err_set(err, ERR_INVALID_ARGUMENT, "config.language: '%.*s' is not supported",
                       STR_ARG_MAX(language, 32));
    j->tests = judge_json(j, 0, "test");
    j->runs_all = json_is_true(json_object_get(json_object_get(j->config, "extra"), "run_all_cases"));
    if (!json_is_array(j->tests) || !json_array_size(j->tests))
        return err_set(err, ERR_INVALID_ARGUMENT, "test must be a list of {input, output}");
    JSON_FOREACH (test, j->tests)
        if (!judge_member(test, "input", "stdin").p || !judge_member(test, "output", "stdout").p)
            return err_set(err, ERR_INVALID_ARGUMENT, "test needs input.stdin and output.stdout");
    j->asked.code = j->code = fusion_extract(http_arena(c->req), j->asked.code, language);
    return fusion_run_times(j->config, 10, j->asked.language->compile ? 10 : 20, &j->asked, err);
}

void fusion_submit(struct call *c)
{
    static const struct {
        const char *type;
        int (*prepare)(struct call *c, struct judge *j, struct err *err);
    } kinds[] = {{"CommonOJDataset", judge_stdio},
                 {"AutoEvalDataset", judge_auto},
                 {"AutoEvalV4Dataset", judge_auto},
                 {"AutoEvalV5Dataset", judge_auto},
                 {"AutoEvalV6Dataset", judge_auto}};
    struct judge *j = arena_alloc(http_arena(c->req), sizeof(*j));
    struct str type = STR("");
    struct err err;
    size_t k = 0;
    *j = (struct judge){.config = judge_config(c), .id = json_object_get(c->body, "id"), .is_accepted = true};
    if (!j->config)
        return;
    j->row = judge_row(c, j->config, j->id);
    if (!j->row)
        return;
    if (json_get_str(j->config, "dataset_type", &type, &err) < 0 ||
        json_get_str(c->body, "completion", &j->asked.code, &err) < 1) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "completion is needed, and config.dataset_type is a string");
        return;
    }
    while (k < ARRAY_SIZE(kinds) && !str_eqc(type, kinds[k].type))
        k++;
    if (k == ARRAY_SIZE(kinds) || json_field(j->config, "custom_extract_logic")) {
        call_fail(c, 400, "%s is not supported: use CommonOJDataset or AutoEvalDataset",
                  k == ARRAY_SIZE(kinds) ? "this dataset_type" : "custom_extract_logic");
        return;
    }
    j->asked.done = judge_ran;
    j->asked.fini = judge_fini;
    buf_init(&j->told, JUDGED_MAX);
    if (kinds[k].prepare(c, j, &err) == 0) {
        judge_next(c, j);
        return;
    }
    judge_fini(&j->run);
    call_fail_err(c, &err);
}
