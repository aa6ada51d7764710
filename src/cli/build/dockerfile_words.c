/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words and variables of a Dockerfile. Those of ARG are known here and replaced; those of ENV are known as far as the
 * file sets them. In ENV itself what is not known stays for the service, which knows the base's; elsewhere it is
 * refused, because nothing good can be guessed.
 */
#include "base/buf.h"
#include "base/json.h"
#include "cli/build/dockerfile_internal.h"

int words_fail(struct parser *p, enum err_code code, const char *fmt, ...)
{
    char message[200];
    FORMAT_ARGS(message, fmt);
    return err_set(p->err, code, "%s:%u: %s", p->name, p->line, message);
}

const char *dockerfile_quote(struct arena *arena, struct str word)
{
    AUTO_BUF struct buf b = BUF_INIT(5 * DOCKERFILE_MAX);
    buf_append_char(&b, '\'');
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] == '\'')
            buf_append_cstr(&b, "'\\''");
        else
            buf_append_char(&b, word.p[i]);
    }
    buf_append_char(&b, '\'');
    return arena_strndup(arena, buf_data(&b) ? buf_data(&b) : "''", buf_len(&b));
}

/* ---- variables ---- */

struct variable *words_find(struct parser *p, struct str name)
{
    for (size_t i = 0; i < p->n_variables; i++)
        if (str_eq(p->variables[i].name, name))
            return &p->variables[i];
    return NULL;
}

int words_set(struct parser *p, struct str name, struct str value, bool has_value, bool is_env)
{
    struct variable *v = words_find(p, name);
    if (v && v->is_env && !is_env)
        return 0; /* ENV wins over ARG */
    if (!v && p->n_variables == DOCKERFILE_ARGS_MAX)
        return words_fail(p, ERR_INVALID_ARGUMENT, "more than %d variables", DOCKERFILE_ARGS_MAX);
    if (!v)
        v = &p->variables[p->n_variables++];
    *v = (struct variable){arena_str(p->arena, name), arena_str(p->arena, value), is_env, has_value};
    return 0;
}

/* "${NAME}", "${NAME:-word}", "${NAME:+word}" or "$NAME" at the beginning of s; its length, 0: none of these. */
static size_t reference(struct str s, struct str *ret_name, char *ret_op, struct str *ret_word)
{
    bool braced = s.n > 1 && s.p[1] == '{';
    size_t from = braced ? 2 : 1, n = str_span_variable(str_sub(s, from));
    *ret_name = str_n(s.p + from, n);
    *ret_op = '\0';
    *ret_word = STR("");
    if (n == 0 || !braced)
        return n ? from + n : 0;
    struct str rest = str_sub(s, from + n);
    ssize_t end = str_find_char(rest, '}');
    if (end < 0)
        return 0;
    if (end == 0)
        return from + n + 1;
    if (end < 2 || rest.p[0] != ':' || (rest.p[1] != '-' && rest.p[1] != '+'))
        return 0;
    *ret_op = rest.p[1];
    *ret_word = str_n(rest.p + 2, (size_t)end - 2);
    return from + n + (size_t)end + 1;
}

/* Appends one reference's value. 1: it stays as it is for the service. */
static int dockerfile_words_append_value(struct parser *p, struct str name, char op, struct str word, bool keeps,
                                         struct buf *b)
{
    const struct variable *v = words_find(p, name);
    bool is_set = v && v->has_value && (op == '\0' || v->value.n);
    if (op == '+') {
        if (is_set)
            buf_append_str(b, word);
        return 0;
    }
    if (is_set && !(keeps && v->is_env)) {
        buf_append_str(b, v->value);
        return 0;
    }
    if (keeps && op == '\0' && (!v || v->is_env))
        return 1;
    if (op == '-') {
        buf_append_str(b, word);
        return 0;
    }
    if (v)
        return 0;
    return words_fail(p, ERR_INVALID_ARGUMENT, "$%.*s is not known here: set it by ARG or ENV", STR_ARG_MAX(name, 64));
}

int words_expand(struct parser *p, struct str s, bool keeps, struct str *ret_text)
{
    AUTO_BUF struct buf b = BUF_INIT(DOCKERFILE_MAX);
    char quote = '\0';
    for (size_t i = 0; i < s.n;) {
        char c = s.p[i];
        struct str name, word;
        char op;
        size_t n;
        if (quote == '\'' ? c == '\'' : (c == '"' || (c == '\'' && !quote))) {
            quote = quote ? '\0' : c;
            i++;
        } else if (quote != '\'' && c == p->escape && i + 1 < s.n) {
            if (keeps && s.p[i + 1] == '$')
                buf_append_char(&b, '\\');
            if (quote && !strchr("\"$\\`", s.p[i + 1]))
                buf_append_char(&b, c);
            buf_append_char(&b, s.p[i + 1]);
            i += 2;
        } else if (quote != '\'' && c == '$' && (n = reference(str_sub(s, i), &name, &op, &word)) > 0) {
            int r = dockerfile_words_append_value(p, name, op, word, keeps, &b);
            if (r < 0)
                return -1;
            if (r)
                buf_append(&b, s.p + i, n);
            i += n;
        } else {
            if (keeps && c == '$' && quote == '\'')
                buf_append_char(&b, '\\');
            buf_append_char(&b, c);
            i++;
        }
    }
    if (quote)
        return words_fail(p, ERR_INVALID_ARGUMENT, "a quote is not closed");
    if (buf_error(&b) < 0)
        return words_fail(p, ERR_INVALID_ARGUMENT, "a value is larger than 1 MiB");
    *ret_text = arena_str(p->arena, buf_str(&b));
    return 0;
}

/* ---- words ---- */

bool words_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool words_next(const struct parser *p, struct str *rest, struct str *ret_word)
{
    char quote = '\0';
    size_t i = 0;
    *rest = str_trim(*rest);
    if (!rest->n)
        return false;
    for (; i < rest->n && (quote || !words_is_blank(rest->p[i])); i++) {
        char c = rest->p[i];
        if (c == p->escape && quote != '\'' && i + 1 < rest->n)
            i++;
        else if (quote ? c == quote : c == '"' || c == '\'')
            quote = quote ? '\0' : c;
    }
    i = MIN(i, rest->n);
    *ret_word = str_n(rest->p, i);
    *rest = str_sub(*rest, i);
    return true;
}

int words_json(struct parser *p, struct str text, struct str *words, size_t *ret_n)
{
    json_t *list = text.n && text.p[0] == '[' ? json_loadb(text.p, text.n, 0, NULL) : NULL;
    int r = json_is_array(list) && json_array_size(list) > 0;
    *ret_n = 0;
    JSON_FOREACH (word, list) {
        struct str s = json_str(word);
        if (!json_is_string(word) || str_has_nul(s) || *ret_n == WORDS_MAX) {
            r = 0;
            break;
        }
        words[(*ret_n)++] = arena_str(p->arena, s);
    }
    json_decref(list);
    return r;
}

struct str words_shell(struct parser *p, struct str rest, bool *ret_is_shell)
{
    struct str words[WORDS_MAX];
    AUTO_BUF struct buf b = BUF_INIT(8 * DOCKERFILE_MAX);
    size_t n;
    *ret_is_shell = !words_json(p, rest, words, &n);
    if (*ret_is_shell)
        return rest;
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_append_char(&b, ' ');
        buf_append_cstr(&b, dockerfile_quote(p->arena, words[i]));
    }
    return arena_str(p->arena, buf_str(&b));
}
