/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/mask.h"
#include "policy/policy.h"

enum { TOKEN_LEAST = 16 };

static bool mask_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static size_t mask_word(struct str s)
{
    size_t n = 0;
    while (n < s.n && mask_is_word(s.p[n]))
        n++;
    return n;
}

/* Up to where a value ends that nobody has quoted, or whoever has quoted it. */
static size_t mask_value(struct str s)
{
    size_t n = 0;
    while (n < s.n && (unsigned char)s.p[n] > ' ' && !memchr("\"'`&;|<>()", s.p[n], 11))
        n++;
    return n;
}

static bool mask_carries(struct str name)
{
    static const struct policy_placeholder usual = {.places = POLICY_IN_HEADER};
    while (name.n && name.p[0] == '-')
        name = str_sub(name, 1);
    return name.n > 0 && !str_eqc(name, "key") && policy_placeholder_is_for(&usual, name);
}

static bool mask_is_token(struct str word)
{
    static const char *const begin[] = {"ghp_",  "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "sk-",  "xoxb-",
                                        "xoxp-", "AKIA", "AIza", "eyJ",  "hf_",         "npm_",   "pypi-"};
    for (size_t i = 0; word.n >= TOKEN_LEAST && i < ARRAY_SIZE(begin); i++)
        if (str_starts(word, str_of(begin[i])))
            return true;
    return false;
}

/* Behind a name: "=", or ":" with blanks, a quote, and perhaps a scheme. How much of it is to be seen; 0: it is no
 * value. */
static size_t mask_before_value(struct str s)
{
    static const char *const schemes[] = {"Bearer ", "bearer ", "Basic ", "basic ", "token ", "Token "};
    size_t at = 0;
    if (at < s.n && (s.p[at] == '"' || s.p[at] == '\''))
        at++; /* {"password": "x"} */
    if (at == s.n || (s.p[at] != '=' && s.p[at] != ':'))
        return 0;
    bool is_header = s.p[at++] == ':';
    while (is_header && at < s.n && s.p[at] == ' ')
        at++;
    if (at < s.n && (s.p[at] == '"' || s.p[at] == '\''))
        at++;
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
        if (str_starts(str_sub(s, at), str_of(schemes[i])))
            return at + strlen(schemes[i]);
    return at;
}

/* How much of it is behind a URL's "://" and before its path. No two of these overlap, so looking for passwords takes
 * as long as the text is. */
static struct str mask_authority(struct str s)
{
    const char *slash = s.n ? memchr(s.p, '/', s.n) : NULL;
    return str_n(s.p, mask_value(slash ? str_n(s.p, (size_t)(slash - s.p)) : s));
}

/* Where the last '@' is; 0: there is none. */
static size_t mask_at(struct str authority)
{
    size_t at = authority.n;
    while (at && authority.p[at - 1] != '@')
        at--;
    return at ? at - 1 : 0;
}

/* "://user:password@": up to and with the second colon; 0: it is none. */
static size_t mask_before_password(struct str s)
{
    if (!str_starts(s, STR("://")))
        return 0;
    struct str authority = mask_authority(str_sub(s, 3));
    ssize_t colon = str_find_char(authority, ':');
    return colon >= 0 && (size_t)colon < mask_at(authority) ? 3 + (size_t)colon + 1 : 0;
}

static void mask_out(struct str *text, size_t seen, size_t hidden, struct buf *to)
{
    (void)buf_append(to, text->p, seen);
    if (hidden)
        (void)buf_append_cstr(to, "***");
    *text = str_sub(*text, seen + hidden);
}

void mask_secrets(struct str text, struct buf *to)
{
    while (text.n) {
        size_t n = mask_word(text);
        bool is_option =
            n > 2 && str_starts(text, STR("--")) && text.n > n + 1 && text.p[n] == ' ' && text.p[n + 1] != '-';
        size_t before = is_option ? 1 : n ? mask_before_value(str_sub(text, n)) : mask_before_password(text);
        struct str value = str_sub(text, n + before);
        if (n && before && mask_carries((struct str){text.p, n})) {
            mask_out(&text, n + before, mask_value(value), to);
        } else if (n) {
            bool is_token = mask_is_token((struct str){text.p, n});
            mask_out(&text, is_token ? 0 : n, is_token ? mask_value(text) : 0, to);
        } else if (before) {
            mask_out(&text, before, mask_at(mask_authority(value)), to);
        } else {
            mask_out(&text, 1, 0, to);
        }
    }
}

bool mask_wants_next(struct str argument)
{
    return str_starts(argument, STR("--")) && mask_word(argument) == argument.n && mask_carries(argument);
}
